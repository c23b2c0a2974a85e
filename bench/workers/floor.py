"""The floor: a bare table, events deleted as they are claimed, through asyncpg. What it takes is gone, whatever happens
next."""

import asyncio
import sys
import time

import psycopg

from bench import peers
from bench.cases.bulk import Floor
from bench.loop import runner
from bench.payloads import BATCH, Payload, decode, in_batches, payloads
from bench.workers.speaking import closed, said, wait_for_go

AT_ONCE = 16
CLAIM = peers.FLOOR_CLAIM.format(limit=BATCH)
ONE = peers.FLOOR_CLAIM.format(limit=1)


def fill(events: int) -> None:
    publisher = Floor("")
    for batch in in_batches(payloads(events)):
        publisher.publish(batch)


async def handle(payload: Payload) -> None:
    payload["order"]


async def drain(over: asyncio.Future[None]) -> None:
    import asyncpg

    # Planned while the table is empty, the claim would read all of it for ever after.
    connection = await asyncpg.connect(server_settings={"enable_seqscan": "off"})
    first = True
    while not over.done():
        rows = await connection.fetch(CLAIM)
        if rows and first:
            first = False
            said("first", time.monotonic())
        for row in rows:
            await handle(decode(row[1]))
        if not rows:
            await asyncio.sleep(0.01)


async def transact(over: asyncio.Future[None]) -> None:
    """BEGIN, DELETE, INSERT, COMMIT, sixteen at once; through psycopg, as handlers have it."""
    seen = False

    async def loop() -> None:
        nonlocal seen
        connection = await psycopg.AsyncConnection.connect("", autocommit=True, prepare_threshold=0)
        while not over.done():
            async with connection.transaction():
                row = await (await connection.execute(ONE)).fetchone()
                if row is None:
                    await asyncio.sleep(0.01)
                    continue
                if not seen:
                    seen = True
                    said("first", time.monotonic())
                await handle(decode(row[1]))
                await connection.execute("insert into own (id) values (%s)", (row[0],))

    await asyncio.gather(*(loop() for _ in range(AT_ONCE)))


async def work(how: str) -> None:
    await asyncio.to_thread(wait_for_go)
    over = asyncio.ensure_future(asyncio.to_thread(closed))
    await (transact(over) if how == "transactional" else drain(over))


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", events]:
            fill(int(events))
        case ["work", how]:
            with runner() as loop:
                loop.run(work(how))
