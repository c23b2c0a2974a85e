"""Takes the exchanges of async sessions through the event loop, with a time limit."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
from typing import Any, Generic, TypeVar

from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

from headrace.driver.session_state import is_cut
from headrace.driver.wire import Overdue

T = TypeVar("T")


class Stepper(Generic[T]):
    """Takes an exchange to its end, one step whenever the loop says that there is something to
    read.

    A thousand events come in forty pieces. Psycopg wakes a task for each of them, which asks to
    be woken for the next one; that takes as long as reading them.
    """

    def __init__(self, exchange: PQGen[T], socket: int) -> None:
        self._exchange = exchange
        self._socket = socket
        self.loop = asyncio.get_running_loop()
        self._writing = False
        self.stepped_at = 0.0
        """When something was last sent to the server, or heard of it."""

    async def run(self) -> T:
        try:
            wanted = next(self._exchange)
        except StopIteration as end:  # as most parts of a COPY do: then the loop is left alone
            return end.value  # type: ignore[no-any-return]
        self._done: asyncio.Future[T] = self.loop.create_future()
        self.stepped_at = monotonic()
        self.loop.add_reader(self._socket, self._step, Ready.R)
        self._watch_for_writing(bool(wanted & Wait.W))
        try:
            return await self._done
        except asyncio.CancelledError:
            self._stop_watching()
            raise

    def _step(self, ready: Ready) -> None:
        if self._done.done():
            return
        try:
            wanted = self._exchange.send(ready)
        except StopIteration as end:
            self._stop_watching()
            self._done.set_result(end.value)
        except BaseException as error:
            self._stop_watching()
            self._done.set_exception(error)
        else:
            self.stepped_at = monotonic()
            self._watch_for_writing(bool(wanted & Wait.W))
            if is_cut(self._socket):
                self.loop.call_soon(self._step, Ready.R)

    def give_up(self, error: Exception) -> None:
        if not self._done.done():
            self._stop_watching()
            self._done.set_exception(error)

    def _watch_for_writing(self, writing: bool) -> None:
        if writing and not self._writing:
            self.loop.add_writer(self._socket, self._step, Ready.W)
        elif self._writing and not writing:
            self.loop.remove_writer(self._socket)
        self._writing = writing

    def _stop_watching(self) -> None:
        # Before anything else happens: a lost connection has closed its socket, and the next socket
        # that is opened gets its number. Asyncio drops closed sockets, and complains.
        with suppress(OSError):
            self.loop.remove_reader(self._socket)
        with suppress(OSError):
            self._watch_for_writing(False)


class Alarm:
    """Ends an exchange whose time is up. Its timer is kept from one exchange to the next: one
    for each would cost more than all other work here for a small statement."""

    __slots__ = ("_at", "_bound", "_progress", "_stepper", "_timer", "_until")

    def __init__(self) -> None:
        self._stepper: Stepper[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._bound = self._until = self._at = 0.0
        self._progress = False

    def set(self, stepper: Stepper[Any], bound: float, until: float, progress: bool) -> None:
        self._stepper, self._bound, self._until, self._progress = stepper, bound, until, progress
        if self._timer is None or self._at > until:
            self._wind(stepper.loop)

    def unset(self) -> None:
        self._stepper = None

    def _wind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = self._until
        self._timer = loop.call_later(max(0.0, self._until - monotonic()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        stepper = self._stepper
        if stepper is None:
            return
        if self._progress:
            self._until = max(self._until, stepper.stepped_at + self._bound)
        if monotonic() >= self._until:
            stepper.give_up(Overdue(self._bound))
        else:
            self._wind(stepper.loop)
