"""Threads for plain handlers: as many as run at once, and none that keeps a process from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

_Job = Callable[[], None]


class Threads:
    """A pool of daemon threads. The standard one joins its threads when the interpreter ends, and a handler
    that hangs would hang the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._count = 0
        self._idle = 0  # threads that wait for a job, less the jobs that wait for a thread

    async def run(self, work: Callable[[], T]) -> T:
        """Await what a function does in a thread. Whoever is cancelled meanwhile does not learn its end."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            try:
                result = work()
            except BaseException as error:
                # In another name: Python deletes the one of an except clause at its end.
                _tell(loop, _fail, done, error)
            else:
                _tell(loop, _succeed, done, result)

        self._submit(job)
        return await done

    def close(self) -> None:
        """Let the threads end that have nothing to do; others end after their job."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _submit(self, job: _Job) -> None:
        # Called by the event loop's thread alone.
        self._jobs.put(job)
        if self._idle > 0:
            self._idle -= 1
        else:
            self._count += 1
            name = f"{self._name}-{self._count}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # and with it the event
            self._idle += 1


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[..., None], *arguments: object) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody is interested any more
        loop.call_soon_threadsafe(what, *arguments)


def _succeed(done: asyncio.Future[T], result: T) -> None:
    if not done.done():
        done.set_result(result)


def _fail(done: asyncio.Future[T], error: BaseException) -> None:
    if not done.done():
        done.set_exception(error)
