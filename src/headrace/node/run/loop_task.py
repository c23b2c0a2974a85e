"""One task of the event loop that awaits for a thread, one thing after the other.

An async layer around a plain handler is entered and left by the same task, as `asyncio.timeout`,
task groups and cancel scopes require. The task and the thread see each other's context variables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple, Protocol, Self

_UNSET = object()


class Waiting(Protocol):
    """The run whose thread waits; it can interrupt the task meanwhile."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def awaits(self, task: LoopTask | None) -> None: ...


class _Job(NamedTuple):
    work: Callable[[], Awaitable[Any]]
    variables: Variables
    done: Future[Any]


class LoopTask:
    def __init__(self, run: Waiting) -> None:
        self._run = run
        self._jobs: asyncio.Queue[_Job | None] = asyncio.Queue()
        self._variables = copy_context()
        self._task: asyncio.Task[None] | None = None
        self._job: _Job | None = None  # that the thread waits for
        self._at_work = False
        self._came_early = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._run.loop.call_soon_threadsafe(self._jobs.put_nowait, None)

    def wait(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Called by the thread. Raises what the work raises."""
        job = self._job = _Job(work, copy_context(), Future())
        self._run.awaits(self)
        try:
            self._run.loop.call_soon_threadsafe(self._start, job)
            return job.done.result()
        finally:
            self._job = None
            self._run.awaits(None)
            _take_over(self._variables)

    def cancel(self) -> bool:
        """Interrupt the work, also if it has not begun. Called in the event loop. False: there is
        none."""
        if self._job is None:
            return False
        if self._at_work and self._task is not None:
            return self._task.cancel()
        self._came_early = True
        return True

    def _start(self, job: _Job) -> None:
        self._jobs.put_nowait(job)
        if self._task is None:
            self._task = self._run.loop.create_task(self._work(), context=self._variables)

    async def _work(self) -> None:
        while (job := await self._next()) is not None:
            _take_over(job.variables)
            came_early, self._came_early = self._came_early, False
            try:
                if came_early:
                    raise asyncio.CancelledError
                self._at_work = True
                done = await job.work()
            except BaseException as error:
                self._at_work = False
                job.done.set_exception(error)
            else:
                self._at_work = False
                job.done.set_result(done)
            del job

    async def _next(self) -> _Job | None:
        """Not to be interrupted by a cancellation that came when the work had just ended."""
        while True:
            try:
                return await self._jobs.get()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or not task.cancelling():
                    raise
                while task.cancelling():
                    task.uncancel()


def _take_over(variables: Variables) -> None:
    """Set the context variables that differ from those in another context."""
    variable: ContextVar[Any]
    for variable, value in variables.items():
        if variable.get(_UNSET) is not value:
            variable.set(value)
