"""chancy: handlers on the event loop, three hundred at once, polled for as soon as one has ended and told of by NOTIFY, and
their ends written often. Runs in an environment of its own."""

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from chancy import Chancy, Queue, Worker, job
from peer import BATCH, Eyes, closed, command, gone

eyes = Eyes("async")


@job(queue="bench")
async def handle(*, payload: dict) -> None:
    eyes.saw()
    payload["order"]


def app() -> Chancy:
    quiet = logging.getLogger("chancy")
    quiet.setLevel(logging.ERROR)
    # libpq finds everything in the environment; a DSN must not be empty, though.
    return Chancy(f"dbname={os.environ['PGDATABASE']}", max_connection_pool_size=20, log=quiet)


async def setup() -> None:
    async with app() as chancy:
        await chancy.migrate()
        queue = Queue(
            "bench",
            concurrency=300,
            executor=Chancy.Executor.Async,
            polling_interval=1,
            eager_polling=True,
        )
        await chancy.declare(queue, upsert=True)


class Publisher:
    def __init__(self, chancy: Chancy) -> None:
        self._chancy = chancy

    async def many(self, payloads: list[dict]) -> None:
        jobs = [handle.job.with_kwargs(payload=payload) for payload in payloads]
        async for _ in self._chancy.push_many(jobs, batch_size=BATCH):
            pass

    async def one(self, payload: dict) -> None:
        await self._chancy.push(handle.job.with_kwargs(payload=payload))


@asynccontextmanager
async def publishing() -> AsyncIterator[Publisher]:
    async with app() as chancy:
        yield Publisher(chancy)


async def work(watching: Eyes) -> None:
    global eyes
    eyes = watching
    async with app() as chancy:
        await gone()
        worker = Worker(chancy, register_signal_handlers=False, shutdown_timeout=5)
        worker.send_outgoing_interval = 0.05
        async with worker:
            eyes.started()
            await closed()


if __name__ == "__main__":
    uvloop.run(command(setup, publishing, work))
