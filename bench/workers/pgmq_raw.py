"""pgmq by raw SQL through psycopg: claims and deletions overlap; no handlers, no log, no retries."""

import asyncio
import sys
import time

import psycopg

from bench.cases.bulk import Pgmq
from bench.loop import runner
from bench.payloads import BATCH, Payload, decode, in_batches, payloads
from bench.workers.speaking import closed, said, wait_for_go

DELETE = "select count(*) from pgmq.delete('bench', %s::bigint[])"
READ = "select msg_id, message::text from pgmq.read('bench', 60, %s)"
Batch = list[tuple[int, Payload]]


def fill(events: int) -> None:
    publisher = Pgmq("")
    for batch in in_batches(payloads(events)):
        publisher.publish(batch)


async def handle(payload: Payload) -> None:
    payload["order"]


class Drain:
    """Claims ahead on one connection, looks at the payloads, deletes on another, all at the same time."""

    def __init__(self) -> None:
        self._claimed: asyncio.Queue[Batch] = asyncio.Queue(maxsize=2)
        self._done: asyncio.Queue[Batch] = asyncio.Queue(maxsize=2)
        self._first = True

    async def claims(self) -> None:
        connection = await connect()
        while True:
            cursor = await psycopg.AsyncCursor(connection).execute(READ, (BATCH,), binary=True)
            batch = [(id, decode(payload)) for id, payload in await cursor.fetchall()]
            if not batch:
                await asyncio.sleep(0.01)
                continue
            if self._first:
                self._first = False
                said("first", time.monotonic())
            await self._claimed.put(batch)

    async def works(self) -> None:
        while True:
            batch = await self._claimed.get()
            for _, payload in batch:
                await handle(payload)
            await self._done.put(batch)

    async def deletes(self) -> None:
        connection = await connect()
        while True:
            batch = await self._done.get()
            ids = f"{{{','.join([str(id) for id, _ in batch])}}}"
            await connection.execute(DELETE, (ids,))


async def connect() -> psycopg.AsyncConnection[tuple[object, ...]]:
    return await psycopg.AsyncConnection.connect("", autocommit=True, prepare_threshold=0)


async def work() -> None:
    await asyncio.to_thread(wait_for_go)
    drain = Drain()
    parts = [asyncio.create_task(part()) for part in (drain.claims, drain.works, drain.deletes)]
    await asyncio.to_thread(closed)
    for part in parts:
        part.cancel()
    await asyncio.gather(*parts, return_exceptions=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", events]:
            fill(int(events))
        case ["work", _]:
            with runner() as loop:
                loop.run(work())
