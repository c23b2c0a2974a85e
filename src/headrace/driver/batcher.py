"""Statements of threads that come at the same moment become one. No thread is added: one of those
that wait sends the statement of all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from headrace.driver import batch
from headrace.driver.batch import Asking, Group, Groups, Waiting, interrupted, isolated, merged
from headrace.driver.pool import none_within
from headrace.driver.run import drive
from headrace.driver.wire import Overdue
from headrace.engine import fork
from headrace.engine.statement import Batchable

TURNS = 2  # of the other threads, in which a caller comes that is just about to

Run = Callable[[Any, float | None], Any]
"""Runs a statement, which must end at that moment of the monotonic clock; None: in its own time."""


class Batcher:
    """Runs statements with `run`, one at a time, and those that come meanwhile together. `bound`:
    seconds that a caller may take.

    A caller can be interrupted between any two lines (Ctrl-C). What it leaves behind costs others
    no more than batch.SLOW: then the next caller sends.
    """

    def __init__(self, run: Run, bound: Callable[[], float]) -> None:
        self._run = run
        self._bound = bound
        self._begin()
        fork.register(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._groups = Groups(Group)

    def after_fork(self) -> None:
        self._begin()

    def takes(self, batchable: Batchable) -> bool:
        """Whether a statement can go with others: one that may wait for another session's
        transaction would keep them."""
        return not batchable.may_wait

    def ask(self, statement: Asking) -> Any:
        """The reply to a statement that is batchable."""
        batchable = statement.batchable
        assert batchable is not None
        alone = object()
        with self._lock:
            group: Group[Caller] = self._groups.of(batchable)
            is_alone = not group.under_way and group.company == 1
            if is_alone:
                group.under_way[alone] = monotonic()
        if not is_alone:
            return self._ask_together(group, Caller(statement, self._bound()))
        try:
            return self._run(statement, None)
        finally:
            self._ended(group, alone)

    def _ask_together(self, group: Group[Caller], caller: Caller) -> Any:
        try:
            with self._lock:
                group.waiting.append(caller)
                self._appoint(group, caller)
            while not caller.is_answered:
                if not caller.is_leading:
                    caller.wait(batch.SLOW)
                if not caller.is_leading and not caller.is_answered:
                    self._look(group, caller)
                if caller.is_leading:
                    self._lead(group, caller)
        finally:
            caller.has_left = True
            if caller.is_leading:  # interrupted: another one is to send
                self._ended(group, caller)
        return caller.result()

    def _look(self, group: Group[Caller], caller: Caller) -> None:
        """A caller waits for long: it may send past a slow statement, or its time is up."""
        with self._lock:
            if caller.is_answered or caller.is_leading:
                return
            if monotonic() >= caller.until:
                raise Overdue(self._bound()) if caller.is_sent else none_within(self._bound())
            if not caller.is_sent:
                self._appoint(group, caller)

    def _appoint(self, group: Group[Caller], caller: Caller) -> None:
        """Have a caller send, if a statement may be sent now."""
        if group.may_send():
            group.under_way[caller] = monotonic()
            caller.is_leading = True

    def _ended(self, group: Group[Caller], sender: object) -> None:
        """A statement has ended: the next one is sent by the youngest of those that wait, which has
        the most time left. Not by the main thread if it can be avoided: Ctrl-C ends its calls."""
        with self._lock:
            group.under_way.pop(sender, None)
            if isinstance(sender, Caller):
                sender.is_leading = False
            group.drop_those_who_left()
            if group.waiting:
                others = [one for one in group.waiting if not one.is_main]
                chosen = (others or group.waiting)[-1]
                self._appoint(group, chosen)
                chosen.wake()

    def _lead(self, group: Group[Caller], leader: Caller) -> None:
        """Send the statement of those that wait."""
        self._wait_for_company(group)
        with self._lock:
            callers = group.take()
            for caller in callers:
                caller.is_sent = True
        try:
            if callers:
                self._run_together(callers, leader.until)
        finally:
            for caller in callers:
                if not caller.is_answered:
                    caller.tell(interrupted())
            self._ended(group, leader)

    def _run_together(self, callers: Sequence[Caller], until: float) -> None:
        def run(some: Sequence[Caller]) -> list[Any]:
            if len(some) == 1:
                return [self._run(some[0].statement, until)]
            replies: list[Any] = self._run(merged(some), until)
            return replies

        steps = isolated(callers, monotonic() + batch.SEARCH)
        answers = drive(run, steps, next(steps))
        for caller, answer in zip(callers, answers, strict=True):
            caller.tell(answer)

    def _wait_for_company(self, group: Group[Caller]) -> None:
        """If several went together last time, wait for those that are just about to come."""
        seen = 0
        while group.company > 1 and seen < len(group.waiting) < batch.MOST:
            seen = len(group.waiting)
            for _ in range(TURNS):
                sleep(0)


class Caller(Waiting):
    """A thread that waits."""

    __slots__ = ("_answer", "_turn", "has_left", "is_answered", "is_leading", "is_main", "is_sent")

    def __init__(self, statement: Asking, bound: float) -> None:
        super().__init__(statement, bound)
        self.is_main = threading.current_thread() is threading.main_thread()
        self.is_leading = self.is_sent = self.is_answered = self.has_left = False
        self._answer: Any = None
        self._turn = threading.Lock()
        self._turn.acquire()

    @property
    def is_gone(self) -> bool:
        return self.has_left

    def wait(self, seconds: float) -> None:
        self._turn.acquire(timeout=seconds)

    def wake(self) -> None:
        with suppress(RuntimeError):  # it has been woken before, and has not looked yet
            self._turn.release()

    def tell(self, answer: Any) -> None:
        self._answer, self.is_answered = answer, True
        self.wake()

    def result(self) -> Any:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer
