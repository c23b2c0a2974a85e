"""Long polls: a worker that finds no event waits for one, without a database connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Protocol, TypeVar

from starlette.requests import Request
from starlette.types import Receive

from headrace.model.pauses import NO_JITTER, Pauses

T = TypeVar("T")

LONGEST = 20.0  # seconds that a request may wait
LOOKING = 4  # of the workers that wait for the same events, how many look at a time
FIRST_PAUSE, LONGEST_PAUSE = 0.04, 1.0  # seconds between two looks
SHORTEST_PAUSE = 0.01  # seconds, until a rate lets an event start


class Watch(Protocol):
    """Is woken when there may be work in a queue."""

    async def arm(self) -> None: ...
    async def wait(self, timeout: float) -> bool: ...  # noqa: ASYNC109
    def wake(self) -> None: ...
    def found(self) -> None: ...
    def disarm(self) -> None: ...


class Wakeups(Protocol):
    """Wakes watches, as long as it works."""

    @property
    def working(self) -> bool: ...
    def watch(self, namespace: str, queue: str) -> Watch: ...


class WaitTime:
    """How long a request waits: until its time is up, the client leaves, or the server stops."""

    def __init__(self, seconds: float) -> None:
        self._until = asyncio.get_running_loop().time() + min(seconds, LONGEST)
        self._over = asyncio.Event()
        self._watch: Watch | None = None
        self.is_gone = False

    @property
    def left(self) -> float:
        """Seconds."""
        if self._over.is_set():
            return 0.0
        return max(0.0, self._until - asyncio.get_running_loop().time())

    def end(self) -> None:
        self._over.set()
        if self._watch is not None:
            self._watch.wake()

    @asynccontextmanager
    async def taking_turns(self, turns: asyncio.Semaphore) -> AsyncIterator[bool]:
        """Whether it got its turn in time."""
        acquiring = asyncio.ensure_future(turns.acquire())
        over = asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait(
                {acquiring, over}, timeout=self.left, return_when=asyncio.FIRST_COMPLETED
            )
            yield acquiring.done()
        finally:
            over.cancel()
            acquiring.cancel()
            with suppress(asyncio.CancelledError):
                await acquiring
                turns.release()

    @asynccontextmanager
    async def watching(self, watch: Watch) -> AsyncIterator[Watch]:
        self._watch = watch
        try:
            await watch.arm()
            yield watch
        finally:
            self._watch = None
            watch.disarm()


class Waiting:
    """Of the workers that wait for the same events, a few look and the others wait for their turn:
    a thousand idle workers cost the database no more than those few."""

    def __init__(self, wakeups: Wakeups, stopping: asyncio.Event) -> None:
        self._wakeups = wakeups
        self._stopping = stopping
        self._turns: dict[Hashable, tuple[asyncio.Semaphore, int]] = {}

    async def until_found(
        self,
        look: Callable[[], Awaitable[list[T]]],
        patience: WaitTime,
        *,
        look_in: Callable[[], float | None] = lambda: None,
        namespace: str,
        queue: str,
        filter: Hashable,
    ) -> list[T]:
        """The answer of the first look that finds something; nothing when the patience ends.
        `look_in`: after how many seconds the next one may find something, as far as a look that
        found nothing knows."""
        found = await look()
        if found or not patience.left:
            return found
        async with (
            self._line((namespace, queue, filter)) as turns,
            patience.taking_turns(turns) as is_on,
        ):
            if not is_on:
                return []
            async with patience.watching(self._wakeups.watch(namespace, queue)) as watch:
                return await self._look_again(look, look_in, patience, watch)

    async def _look_again(
        self,
        look: Callable[[], Awaitable[list[T]]],
        look_in: Callable[[], float | None],
        patience: WaitTime,
        watch: Watch,
    ) -> list[T]:
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE, jitter=NO_JITTER)
        is_early = False
        while patience.left:
            found = await look()
            if found:
                watch.found()
                return found
            pause = LONGEST_PAUSE if self._wakeups.working else pauses.next()
            soon = look_in()
            # Another worker may be faster, so two early looks never follow each other, unless the
            # worker was woken before the time came.
            is_early = not is_early and soon is not None and soon < pause
            if is_early:
                pause = max(soon or 0.0, SHORTEST_PAUSE)
            if await watch.wait(min(pause, patience.left)):
                is_early = False
        return []

    @asynccontextmanager
    async def _line(self, key: Hashable) -> AsyncIterator[asyncio.Semaphore]:
        turns, users = self._turns.get(key) or (asyncio.Semaphore(LOOKING), 0)
        self._turns[key] = (turns, users + 1)
        try:
            yield turns
        finally:
            turns, users = self._turns[key]
            if users > 1:
                self._turns[key] = (turns, users - 1)
            else:
                del self._turns[key]

    @asynccontextmanager
    async def patience(self, request: Request, seconds: float) -> AsyncIterator[WaitTime]:
        """The patience of a request. Its client is watched, unless `seconds` is 0."""
        patience = WaitTime(seconds)
        if seconds <= 0:
            yield patience
            return
        watching = [
            asyncio.create_task(_end_when_gone(request, patience)),
            asyncio.create_task(_end_when_set(self._stopping, patience)),
        ]
        try:
            yield patience
        finally:
            for task in watching:
                task.cancel()


async def is_gone(request: Request) -> bool:
    """Whether the client of a request, which is not watched, has left by now."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0):
            await until_gone(request.receive)
            return True
    return False


async def until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _end_when_gone(request: Request, patience: WaitTime) -> None:
    await until_gone(request.receive)
    patience.is_gone = True
    patience.end()


async def _end_when_set(event: asyncio.Event, patience: WaitTime) -> None:
    await event.wait()
    patience.end()


class NoWakeups:
    """Without wakeups, every watch polls."""

    working = False

    def watch(self, namespace: str, queue: str) -> Watch:
        return _Sleep()


class _Sleep:
    def __init__(self) -> None:
        self._woken = asyncio.Event()

    async def arm(self) -> None: ...

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109
        try:
            await asyncio.wait_for(self._woken.wait(), timeout)
        except TimeoutError:
            return False
        return True

    def wake(self) -> None:
        self._woken.set()

    def found(self) -> None: ...

    def disarm(self) -> None: ...
