"""What a node opens before its first claim, and closes after its last handler: the resources per
process, and the functions of `on_start` and `on_stop`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, NamedTuple

from headrace.async_client import AsyncEventQueue
from headrace.errors import InvalidInput
from headrace.node.handler.layer import AsyncVisit, End, Layer, PlainVisit, layer_asks
from headrace.node.handler.registry import Handlers
from headrace.node.handler.signature import Parameters, is_async, name_of
from headrace.node.run.threads import Threads

logger = logging.getLogger("headrace.node")


class Hook(NamedTuple):
    """A function of `on_start` or `on_stop`."""

    function: Callable[..., Any]
    asked: Parameters


class Lifespan:
    """One task opens all of it and closes it, so that a resource may hold a task group. Plain
    functions run in threads."""

    def __init__(self, handlers: Handlers) -> None:
        self._handlers = handlers
        self._on_start: list[Hook] = []
        self._on_stop: list[Hook] = []
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.queue: AsyncEventQueue | None = None
        """For the functions of on_start, while they run."""

    def forget(self) -> None:
        """All of it belongs to the process that this one was forked from."""
        self._task = self.queue = None
        self._handlers.surroundings.values.clear()

    def add(self, function: Callable[..., Any], *, at_start: bool) -> None:
        what = f"a function of {'on_start' if at_start else 'on_stop'}"
        if not callable(function):
            raise InvalidInput(f"{what} must be a function, and {function!r:.200} is not")
        resources = self._handlers.surroundings.per_process
        hook = Hook(function, layer_asks(what, function, (), resources))
        (self._on_start if at_start else self._on_stop).append(hook)

    async def start(self, queue: AsyncEventQueue, threads: Threads) -> None:
        """Open everything; if that fails, what was opened is closed again."""
        surroundings = self._handlers.surroundings
        if not (surroundings.per_process or self._on_start or self._on_stop):
            return
        loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        opened: asyncio.Future[None] = loop.create_future()
        task = self._task = loop.create_task(self._live(threads, opened), name="headrace: lifespan")
        self.queue = queue
        try:
            await opened
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            self.queue = None
            if not opened.done() or opened.cancelled() or opened.exception() is not None:
                await self.stop()

    async def stop(self) -> None:
        """Close everything. If the caller is cancelled meanwhile, it is broken off."""
        task, self._task = self._task, None
        self._over.set()
        if task is not None:
            await task

    async def _live(self, threads: Threads, opened: asyncio.Future[None]) -> None:
        visited: list[tuple[Layer, PlainVisit | AsyncVisit]] = []
        try:
            await self._open(threads, visited)
            opened.set_result(None)
            await self._over.wait()
            for hook in reversed(self._on_stop):
                await self._log(self._call(threads, hook), name_of(hook.function))
        except BaseException as error:
            if not opened.done():
                opened.set_exception(error)
            end = End(error=error)
        else:
            end = End()
        for layer, visit in reversed(visited):
            leaving = _run(threads, layer.is_async, partial(visit.leave, end))
            await self._log(leaving, layer.title)
        self._handlers.surroundings.values.clear()

    async def _open(
        self, threads: Threads, visited: list[tuple[Layer, PlainVisit | AsyncVisit]]
    ) -> None:
        surroundings = self._handlers.surroundings
        for name, layer in surroundings.per_process.items():
            visit = layer.visit(surroundings.values)
            try:
                value = await _run(threads, layer.is_async, visit.enter)
            except BaseException as error:
                error.add_note(f"In {layer.title}, when the node started")
                raise
            surroundings.values[name] = value
            visited.append((layer, visit))
        for hook in self._on_start:
            await self._call(threads, hook)

    async def _call(self, threads: Threads, hook: Hook) -> None:
        positional, named = hook.asked.of(self._handlers.surroundings.values)
        call = partial(hook.function, *positional, **named)
        await _run(threads, is_async(hook.function), call)

    async def _log(self, closing: Awaitable[object], what: str) -> None:
        """What fails when a node stops does not keep the rest from being closed."""
        try:
            await closing
        except asyncio.CancelledError:
            logger.error("%s did not end in time when the node stopped, and was broken off", what)
        except Exception:
            logger.exception("%s failed when the node stopped", what)


async def _run(threads: Threads, awaits: bool, work: Callable[[], Any]) -> Any:
    if awaits:
        return await work()
    return await threads.run(partial(copy_context().run, work))
