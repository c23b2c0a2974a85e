"""Threads for plain handlers: as many as run at once, and none that keeps a process from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import NoReturn, TypeVar

T = TypeVar("T")

_Job = Callable[[], None]


class Threads:
    """A pool of daemon threads. The standard one joins its threads when the interpreter ends, and a
    handler that hangs would hang the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._count = 0
        self._idle = threading.Semaphore(0)  # one for each thread that waits for a job

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a thread and await it. A caller that is cancelled meanwhile does not
        learn how the function ends."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Callable[[], T]] = loop.create_future()

        def job() -> None:
            try:
                end: Callable[[], T] = partial(_return, work())
            except BaseException as error:
                end = partial(_raise, error)
            with suppress(RuntimeError):  # the loop is closed: no caller waits any more
                loop.call_soon_threadsafe(_tell, done, end)

        self._submit(job)
        # Raised here and not by the future, which takes every exception but StopIteration.
        return (await done)()

    def close(self) -> None:
        """Let idle threads end; the others end after their job."""
        for _ in range(self._count):
            self._jobs.put(None)

    def _submit(self, job: _Job) -> None:
        # Called by the event loop's thread alone.
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False):
            self._count += 1
            name = f"{self._name}-{self._count}"
            threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # and with it the event
            self._idle.release()


def _tell(done: asyncio.Future[Callable[[], T]], end: Callable[[], T]) -> None:
    if not done.done():
        done.set_result(end)


def _return(result: T) -> T:
    return result


def _raise(error: BaseException) -> NoReturn:
    raise error
