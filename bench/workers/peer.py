"""What the programs of other queues share. They run where nothing of ours is installed, so this needs Python alone."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

PAYLOAD = {"order": 1_000_000, "customer": "customer-000001", "total": 12.5, "note": "n" * 128}
BATCH = 1_000


class Publisher(Protocol):
    async def many(self, payloads: list[dict[str, Any]]) -> object: ...
    async def one(self, payload: dict[str, Any]) -> object: ...


class Eyes:
    """What a handler calls for every event."""

    def __init__(self, how: str) -> None:
        self._every = how == "latency"
        self._first = not self._every

    def saw(self) -> None:
        if self._first:
            self._first = False
            said("first", time.monotonic())
        elif self._every:
            said("seen", time.monotonic())

    def started(self) -> None:
        if self._every:
            said("started", time.monotonic())


async def command(
    setup: Callable[[], Awaitable[None]],
    publishing: Callable[[], AbstractAsyncContextManager[Publisher]],
    work: Callable[[Eyes], Awaitable[None]],
) -> None:
    """Do what the command line says."""
    match sys.argv[1:]:
        case ["setup"]:
            await setup()
        case ["fill", events]:
            async with publishing() as to:
                for batch in batches(int(events)):
                    await to.many(batch)
        case ["publish", how]:
            async with publishing() as to:
                await publish(to, how)
        case ["work", how]:
            await work(Eyes(how))


async def publish(to: Publisher, how: str) -> None:
    """What was prepared, whenever it is told to."""
    given: list[list[dict[str, Any]]] = []
    said("ready")
    while line := await asyncio.to_thread(sys.stdin.readline):
        if line.strip() != "go":
            given = batches(int(line))
            said("prepared")
            continue
        began = time.monotonic()
        for batch in given:
            if how == "bulk":
                await to.many(batch)
            else:
                for payload in batch:
                    await to.one(payload)
        said("published", began, time.monotonic())


def batches(events: int) -> list[list[dict[str, Any]]]:
    return [
        [PAYLOAD | {"order": number} for number in range(at, min(at + BATCH, events))]
        for at in range(0, events, BATCH)
    ]


async def gone() -> None:
    """Say that all is ready, and wait for the word to go."""
    said("ready")
    await asyncio.to_thread(sys.stdin.readline)


async def closed() -> None:
    """Wait until the benchmark has heard enough."""
    await asyncio.to_thread(sys.stdin.read)


def said(*words: object) -> None:
    print(*words, flush=True)
