"""pgqueuer, in batches and with asyncpg, as its own benchmark has it. Runs in an environment of its own."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import uvloop
from peer import BATCH, Eyes, closed, command, gone
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries


@asynccontextmanager
async def queries() -> AsyncIterator[Queries]:
    connection = await asyncpg.connect()
    yield Queries(AsyncpgDriver(connection))
    await connection.close()


async def setup() -> None:
    async with queries() as made:
        await made.install()


class Publisher:
    def __init__(self, to: Queries) -> None:
        self._to = to

    async def many(self, payloads: list[dict]) -> None:
        encoded = [json.dumps(payload).encode() for payload in payloads]
        await self._to.enqueue(["order"] * len(encoded), encoded, [0] * len(encoded))

    async def one(self, payload: dict) -> None:
        await self._to.enqueue("order", json.dumps(payload).encode())


@asynccontextmanager
async def publishing() -> AsyncIterator[Publisher]:
    async with queries() as to:
        yield Publisher(to)


async def work(eyes: Eyes) -> None:
    queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect()))

    @queuer.entrypoint("order")
    async def handle(job) -> None:
        eyes.saw()
        json.loads(job.payload)["order"]

    await gone()
    running = asyncio.create_task(queuer.run(batch_size=BATCH))
    eyes.started()
    await closed()
    queuer.shutdown.set()
    await asyncio.wait([running], timeout=5)


if __name__ == "__main__":
    uvloop.run(command(setup, publishing, work))
