"""awa: a Rust core that claims in batches and calls Python's handlers. Runs in an environment of its own."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote

import awa
import uvloop
from peer import BATCH, Eyes, closed, command, gone

QUEUE = "bench"


@dataclass
class Order:
    order: int
    customer: str
    total: float
    note: str


def client() -> awa.AsyncClient:
    host, user = (quote(os.environ.get(name, ""), safe="") for name in ("PGHOST", "PGUSER"))
    port, database = os.environ.get("PGPORT", "5432"), quote(os.environ["PGDATABASE"], safe="")
    address = f"postgres://{user}@localhost:{port}/{database}?host={host}"
    return awa.AsyncClient(address, max_connections=20)


async def setup() -> None:
    await client().migrate()
    # The first worker of a new installation switches it to the storage for queues; only then can it be copied into.
    worker = client()
    worker.task(Order, queue=QUEUE)(_ignore)
    await worker.start([(QUEUE, 1)])
    await worker.shutdown()


async def _ignore(job: awa.Job) -> None:
    """Never called: there is nothing yet."""


class Publisher:
    def __init__(self) -> None:
        self._client = client()

    async def many(self, payloads: list[dict]) -> None:
        await self._client.enqueue_many_copy([Order(**one) for one in payloads], queue=QUEUE)

    async def one(self, payload: dict) -> None:
        await self._client.insert(Order(**payload), queue=QUEUE)


@asynccontextmanager
async def publishing() -> AsyncIterator[Publisher]:
    yield Publisher()


async def work(eyes: Eyes) -> None:
    worker = client()

    @worker.task(Order, queue=QUEUE)
    async def handle(job: awa.Job) -> None:
        eyes.saw()
        _ = job.args.order

    await gone()
    await worker.start(
        [{"name": QUEUE, "max_workers": BATCH, "claim_batch_size": BATCH}],
        poll_interval_ms=50,
    )
    eyes.started()
    await closed()
    await worker.shutdown(timeout_ms=2000)


if __name__ == "__main__":
    uvloop.run(command(setup, publishing, work))
