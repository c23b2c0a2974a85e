"""The floor: a bare table, events deleted as they are claimed, through asyncpg. What it takes is gone, whatever happens
next."""

import asyncio
import sys
import time

from bench import peers
from bench.cases.bulk import Floor
from bench.loop import runner
from bench.payloads import BATCH, Payload, decode, in_batches, payloads
from bench.workers.speaking import closed, said, wait_for_go

CLAIM = peers.FLOOR_CLAIM.format(limit=BATCH)


def fill(events: int) -> None:
    publisher = Floor("")
    for batch in in_batches(payloads(events)):
        publisher.publish(batch)


async def handle(payload: Payload) -> None:
    payload["order"]


async def work() -> None:
    import asyncpg

    connection = await asyncpg.connect()
    await asyncio.to_thread(wait_for_go)
    over = asyncio.create_task(asyncio.to_thread(closed))
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


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["fill", events]:
            fill(int(events))
        case ["work", _]:
            with runner() as loop:
                loop.run(work())
