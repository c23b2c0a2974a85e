"""A node that tells every second how long its events were on the way, as a histogram."""

import asyncio
import json
import time

import headrace
from bench.loop import runner
from bench.scaling.histogram import Histogram
from bench.workers.speaking import closed, said, wait_for_go

DSN = "application_name=bench"
TELL_EVERY = 1.0


async def work() -> None:
    node = headrace.Node(dsn=DSN, concurrency=100)
    took = Histogram()

    @node.on_event("*")
    async def handle(event: headrace.Claimed) -> None:
        took.add(time.monotonic() - event.payload["at"])

    async def tell() -> None:
        while True:
            await asyncio.sleep(TELL_EVERY)
            said("handled", json.dumps(took.counts))
            took.counts.clear()

    await asyncio.to_thread(wait_for_go)
    async with node:
        said("started", time.monotonic())
        telling = asyncio.create_task(tell())
        await asyncio.to_thread(closed)
        telling.cancel()


if __name__ == "__main__":
    with runner() as loop:
        loop.run(work())
