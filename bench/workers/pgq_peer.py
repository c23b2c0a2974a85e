"""PgQ, for reference: a consumer has its events in batches between two ticks and acknowledges a batch as a whole, so nothing is
claimed, retried or finished by itself. Ticks are made here, every hundredth of a second, as pgqd would make them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from bench.loop import runner
from bench.payloads import decode, encode
from bench.workers.peer import Eyes, closed, command, gone

PAUSE = 0.01  # seconds between two ticks
FETCH = 1_000
DATA = 5  # where the payload is in a row of such a cursor
SETUP = """
create extension if not exists pgq;
select pgq.create_queue('bench');
select pgq.set_queue_config('bench', 'ticker_max_count', '1');
select pgq.set_queue_config('bench', 'ticker_max_lag', '0 seconds');
select pgq.register_consumer('bench', 'bench');
"""
INSERT = "select pgq.insert_event('bench', 'order', %s)"
INSERT_MANY = """
select count(pgq.insert_event('bench', 'order', value::text)) from jsonb_array_elements(%s::jsonb)"""


async def connect() -> psycopg.AsyncConnection[tuple[Any, ...]]:
    return await psycopg.AsyncConnection.connect("", autocommit=True, prepare_threshold=0)


async def setup() -> None:
    async with await connect() as connection:
        await connection.execute(SETUP, prepare=False)


class Publisher:
    def __init__(self, connection: psycopg.AsyncConnection[tuple[Any, ...]]) -> None:
        self._connection = connection

    async def many(self, payloads: list[dict[str, Any]]) -> None:
        document = b"[%b]" % b",".join([encode(payload) for payload in payloads])
        await self._connection.execute(INSERT_MANY, (document.decode(),))

    async def one(self, payload: dict[str, Any]) -> None:
        await self._connection.execute(INSERT, (encode(payload).decode(),))


@asynccontextmanager
async def publishing() -> AsyncIterator[Publisher]:
    async with await connect() as connection:
        yield Publisher(connection)


async def handle(payload: dict[str, Any]) -> None:
    payload["order"]


async def tick(over: asyncio.Task[None]) -> None:
    async with await connect() as connection:
        while not over.done():
            await connection.execute("select pgq.ticker('bench')")
            await asyncio.sleep(PAUSE)


async def consume(over: asyncio.Task[None], eyes: Eyes) -> None:
    async with await connect() as connection:
        while not over.done():
            found = await connection.execute("select pgq.next_batch('bench', 'bench')")
            ((batch,),) = await found.fetchall()
            if batch is None:
                await asyncio.sleep(PAUSE / 2)
                continue
            async with connection.transaction():
                await read(connection, batch, eyes)
                await connection.execute("select pgq.finish_batch(%s)", (batch,))


async def read(
    connection: psycopg.AsyncConnection[tuple[Any, ...]], batch: int, eyes: Eyes
) -> None:
    events = "select ev_data from pgq.get_batch_cursor(%s, 'events', %s)"
    cursor = psycopg.AsyncCursor(connection)
    rows = await (await cursor.execute(events, (batch, FETCH))).fetchall()
    while rows:
        for (payload,) in rows:
            eyes.saw()
            await handle(decode(payload))
        await cursor.execute(f"fetch {FETCH} from events")
        rows = [(row[DATA],) for row in await cursor.fetchall()]
    await connection.execute("close events")


async def work(eyes: Eyes) -> None:
    await gone()
    over = asyncio.create_task(closed())
    eyes.started()
    await asyncio.gather(tick(over), consume(over, eyes))


if __name__ == "__main__":
    with runner() as loop:
        loop.run(command(setup, publishing, work))
