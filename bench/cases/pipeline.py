"""Claim ahead, work and finish at the same time; in the same way for whoever can."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def overlap(
    events: int,
    claim: Callable[[], Awaitable[list[T]]],
    work: Callable[[list[T]], Awaitable[None]],
    finish: Callable[[list[T]], Awaitable[None]],
) -> None:
    """Return when `events` are finished. Nothing more is claimed than that, so nobody is waited for."""
    claimed: asyncio.Queue[list[T]] = asyncio.Queue(maxsize=2)
    done: asyncio.Queue[list[T]] = asyncio.Queue(maxsize=2)

    async def claims() -> None:
        missing = events
        while missing:
            batch = await claim()
            if not batch:
                raise RuntimeError(f"{missing} events are missing")
            missing -= len(batch)
            await claimed.put(batch)

    async def works() -> None:
        missing = events
        while missing:
            batch = await claimed.get()
            await work(batch)
            missing -= len(batch)
            await done.put(batch)

    async def finishes() -> None:
        missing = events
        while missing:
            batch = await done.get()
            await finish(batch)
            missing -= len(batch)

    async with asyncio.TaskGroup() as group:
        for part in (claims, works, finishes):
            group.create_task(part())
