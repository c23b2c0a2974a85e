"""The same as batcher.py for asyncio: statements of tasks that come at the same moment become one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import copy_context
from time import monotonic
from typing import Any

from headrace.driver import batch
from headrace.driver.batch import Asking, Group, Groups, Waiting, interrupted, isolated, merged
from headrace.driver.pool import none_within
from headrace.driver.run import drive_async
from headrace.driver.wire import Overdue
from headrace.engine import fork
from headrace.engine.statement import Batchable

TURNS = 2  # of the event loop, in which a caller comes that is just about to

Run = Callable[[Any], Awaitable[Any]]


class AsyncBatcher:
    """Runs statements with `run`, one at a time, and those that come meanwhile together. `bound`:
    seconds that a caller may wait. `within`: what to enter around a statement."""

    def __init__(
        self,
        run: Run,
        bound: Callable[[], float],
        *,
        may_wait: bool = False,
        within: Callable[[Batchable], AbstractContextManager[object]] | None = None,
    ) -> None:
        self._run = run
        self._bound = bound
        self._may_wait = may_wait
        self._within = within
        self._groups = Groups(AsyncGroup)
        fork.register(self)

    def after_fork(self) -> None:
        _inherited.append(self._groups)
        self._groups = Groups(AsyncGroup)

    def takes(self, batchable: Batchable) -> bool:
        """Whether a statement can go with others here: one that waits for another session's
        transaction needs a time limit that is its own, or PostgreSQL's."""
        return self._may_wait or not batchable.may_wait

    async def ask(self, statement: Asking) -> Any:
        """The reply to a statement that is batchable."""
        batchable = statement.batchable
        assert batchable is not None
        group: AsyncGroup = self._groups.of(batchable)
        if group.under_way or group.company > 1:
            return await self._ask_together(group, statement)
        alone = object()
        group.under_way[alone] = monotonic()
        try:
            if self._within is None:
                return await self._run(statement)
            with self._within(batchable):
                return await self._run(statement)
        finally:
            del group.under_way[alone]
            if group.waiting:
                self._send(group)

    async def _ask_together(self, group: AsyncGroup, statement: Asking) -> Any:
        caller = Caller(statement, self._bound())
        group.waiting.append(caller)
        self._send(group)
        try:
            return await caller.answer
        except asyncio.CancelledError:
            caller.leave()
            raise

    def _send(self, group: AsyncGroup) -> None:
        while group.waiting and group.waiting[0].is_gone:
            group.waiting.popleft()
        if group.waiting and group.may_send():
            Sent(self, group)
        if group.look is None and (group.waiting or group.sent):
            loop = asyncio.get_running_loop()
            group.look = loop.call_later(batch.SLOW, self._look, group)

    def _look(self, group: AsyncGroup) -> None:
        """Tell callers whose time is up, and send others past a slow statement."""
        group.look = None
        now = monotonic()
        while group.waiting and (group.waiting[0].is_gone or group.waiting[0].until <= now):
            group.waiting.popleft().fail(none_within(self._bound()))
        for sent in group.sent:
            for caller in sent.callers:
                if caller.until <= now:
                    caller.fail(Overdue(self._bound()))
        self._send(group)

    async def run_together(self, callers: Sequence[Caller]) -> list[Any]:
        if len(callers) == 1:
            return [await self._run(callers[0].statement)]
        replies: list[Any] = await self._run(merged(callers))
        return replies

    def sent(self, group: AsyncGroup, sent: Sent) -> None:
        """A statement has ended."""
        group.sent.discard(sent)
        del group.under_way[sent]
        self._send(group)

    def within(self, callers: Sequence[Caller]) -> AbstractContextManager[object]:
        return self._within(callers[0].batchable) if self._within else nullcontext()


# The groups of the parent. The child keeps them: asyncio complains about a task that is dropped
# while it is pending.
_inherited: list[Groups] = []


class Caller(Waiting):
    """A task that waits."""

    __slots__ = ("answer", "context", "sent")

    def __init__(self, statement: Asking, bound: float) -> None:
        super().__init__(statement, bound)
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.context = copy_context()
        self.sent: Sent | None = None

    @property
    def is_gone(self) -> bool:
        return self.answer.done()

    def tell(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            self.fail(answer)
        elif not self.answer.done():
            self.answer.set_result(answer)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def leave(self) -> None:
        """It was cancelled."""
        if not self.answer.cancelled() and self.answer.done():
            self.answer.exception()  # else asyncio complains that nobody asked
        if self.sent is not None:
            self.sent.left()


class AsyncGroup(Group[Caller]):
    def __init__(self) -> None:
        super().__init__()
        self.sent: set[Sent] = set()
        self.look: asyncio.TimerHandle | None = None


class Sent:
    """The callers of one statement, and the task that runs it: no caller's, because each of them
    may be cancelled."""

    def __init__(self, batcher: AsyncBatcher, group: AsyncGroup) -> None:
        self.callers: list[Caller] = []
        self._batcher = batcher
        self._group = group
        group.under_way[self] = monotonic()
        group.sent.add(self)
        loop, oldest = asyncio.get_running_loop(), group.waiting[0]
        self._task = loop.create_task(self._send(), context=oldest.context)
        self._task.add_done_callback(lambda task: batcher.sent(group, self))

    def left(self) -> None:
        """A caller was cancelled. When none is left, the statement is given up."""
        if all(caller.is_gone for caller in self.callers):
            self._task.cancel()

    async def _send(self) -> None:
        await self._wait_for_company()
        self.callers = callers = self._group.take()
        for caller in callers:
            caller.sent = self
        try:
            if callers:
                await self._run(callers)
        except BaseException:
            for caller in callers:
                caller.fail(interrupted())
            raise

    async def _run(self, callers: Sequence[Caller]) -> None:
        steps = isolated(callers, monotonic() + batch.SEARCH)
        with self._batcher.within(callers):
            answers = await drive_async(self._batcher.run_together, steps, next(steps))
        for caller, answer in zip(callers, answers, strict=True):
            caller.tell(answer)

    async def _wait_for_company(self) -> None:
        """If several went together last time, wait for those that are just about to come."""
        group, seen = self._group, 0
        while group.company > 1 and seen < len(group.waiting) < batch.MOST:
            seen = len(group.waiting)
            for _ in range(TURNS):
                await asyncio.sleep(0)
