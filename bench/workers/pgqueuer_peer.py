"""pgqueuer, in batches and with asyncpg, as its own benchmark has it. Runs in an environment of its own."""

import asyncio
import json
import sys
import time

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries

PAYLOAD = {"order": 1_000_000, "customer": "customer-000001", "total": 12.5, "note": "n" * 128}
BATCH = 1_000


async def setup() -> None:
    connection = await asyncpg.connect()
    await Queries(AsyncpgDriver(connection)).install()
    await connection.close()


async def fill(events: int) -> None:
    connection = await asyncpg.connect()
    queries = Queries(AsyncpgDriver(connection))
    for at in range(0, events, BATCH):
        size = min(BATCH, events - at)
        payloads = [json.dumps(PAYLOAD | {"order": at + n}).encode() for n in range(size)]
        await queries.enqueue(["order"] * size, payloads, [0] * size)
    await connection.close()


async def work() -> None:
    connection = await asyncpg.connect()
    queuer = PgQueuer(AsyncpgDriver(connection))
    seen = False

    @queuer.entrypoint("order")
    async def handle(job) -> None:
        nonlocal seen
        if not seen:
            seen = True
            print("first", time.monotonic(), flush=True)
        json.loads(job.payload)["order"]

    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    running = asyncio.create_task(queuer.run(batch_size=BATCH))
    await asyncio.to_thread(sys.stdin.read)
    queuer.shutdown.set()
    await asyncio.wait([running], timeout=5)


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    uvloop.run({"setup": setup, "fill": lambda: fill(int(rest[0])), "work": work}[command]())
