"""procrastinate, a hundred jobs at once. Runs in an environment of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from peer import Eyes, closed, command, gone
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo="", min_size=4, max_size=20))
eyes = Eyes("async")


@app.task(name="order")
async def handle(payload: dict) -> None:
    eyes.saw()
    payload["order"]


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


class Publisher:
    async def many(self, payloads: list[dict]) -> None:
        await handle.batch_defer_async(*({"payload": payload} for payload in payloads))

    async def one(self, payload: dict) -> None:
        await handle.defer_async(payload=payload)


@asynccontextmanager
async def publishing() -> AsyncIterator[Publisher]:
    async with app.open_async():
        yield Publisher()


async def work(watching: Eyes) -> None:
    global eyes
    eyes = watching
    async with app.open_async():
        await gone()
        running = asyncio.create_task(
            app.run_worker_async(
                concurrency=100, install_signal_handlers=False, delete_jobs="always"
            )
        )
        eyes.started()
        await closed()
        running.cancel()
        await asyncio.wait([running], timeout=5)


if __name__ == "__main__":
    uvloop.run(command(setup, publishing, work))
