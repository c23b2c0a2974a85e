"""procrastinate, a hundred jobs at once. Runs in an environment of its own."""

import asyncio
import sys
import time

import uvloop
from procrastinate import App, PsycopgConnector

PAYLOAD = {"order": 1_000_000, "customer": "customer-000001", "total": 12.5, "note": "n" * 128}
BATCH = 1_000

app = App(connector=PsycopgConnector(conninfo="", min_size=4, max_size=20))
seen = False


@app.task(name="order")
async def handle(payload: dict) -> None:
    global seen
    if not seen:
        seen = True
        print("first", time.monotonic(), flush=True)
    payload["order"]


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def fill(events: int) -> None:
    async with app.open_async():
        for at in range(0, events, BATCH):
            size = min(BATCH, events - at)
            await handle.batch_defer_async(
                *({"payload": PAYLOAD | {"order": at + n}} for n in range(size))
            )


async def work() -> None:
    async with app.open_async():
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        running = asyncio.create_task(
            app.run_worker_async(
                concurrency=100, install_signal_handlers=False, delete_jobs="always"
            )
        )
        await asyncio.to_thread(sys.stdin.read)
        running.cancel()
        await asyncio.wait([running], timeout=5)


if __name__ == "__main__":
    command, *rest = sys.argv[1:]
    uvloop.run({"setup": setup, "fill": lambda: fill(int(rest[0])), "work": work}[command]())
