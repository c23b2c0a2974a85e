"""The events that a run is at, the contexts of their handlers, and how they are interrupted.

The event loop may ask for all of it while a thread goes on with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from time import monotonic
from typing import Any, Protocol, TypeAlias

from headrace.model import Claimed
from headrace.node.finish.finisher import Ended
from headrace.node.handler.collect import Collected
from headrace.node.handler.context import AsyncContext, Context, Means
from headrace.node.handler.handler import Handler
from headrace.node.run.loop_task import LoopTask

logger = logging.getLogger("headrace.node")

UNWINDING = 1.0  # seconds that a handler has to end by itself after its time is up


class CutReason(Enum):
    """Why a handler is interrupted."""

    TIMEOUT = "its time is up"
    LOST = "its lease is lost, or its event was taken out of it"
    SHUTDOWN = "the node stops"


Turn: TypeAlias = list[Sequence[Claimed]]
"""Holds the events in progress until one side takes them and decides how they end: the thread that
runs them, or the loop that gives them up."""


def taken(turn: Turn) -> Sequence[Claimed] | None:
    """The events that a turn held. None: the other side was faster."""
    try:
        return turn.pop()
    except IndexError:
        return None


class Common(Protocol):
    """The state that all runs of a node share."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...
    @property
    def means(self) -> Means: ...
    @property
    def async_means(self) -> Means: ...


class Underway:
    """One thing at a time: an event, or a batch. The variable `current` holds this object while a
    quick handler runs; else it holds an Execution."""

    __slots__ = (
        "_awaited",
        "_collected",
        "_common",
        "_connection",
        "_contexts",
        "_deadline",
        "_ended",
        "_execution",
        "_given_back",
        "_handler",
        "_in_thread",
        "_last_moment",
        "_progress",
        "_reason",
        "_timer",
        "_timer_at",
        "_turn",
        "claims",
        "is_abandoned",
        "task",
    )

    def __init__(self, common: Common) -> None:
        self.task: asyncio.Task[None] | None = None
        self.claims: Sequence[Claimed] = ()
        self._common = common
        self._handler: Handler | None = None
        self._execution: Execution | None = None
        self._contexts: dict[bool, Context] = {}  # by whether they are for async handlers
        self._connection: Any = None
        self._collected: Collected | None = None
        self._progress: Any = None
        self._in_thread = False
        self._awaited: Any = None  # by the thread
        self._reason: CutReason | None = None
        self._given_back: Sequence[Claimed] | None = None
        self._ended: deque[Ended] = deque()  # by the thread, and not reported yet
        self._turn: Turn = []
        self.is_abandoned = False
        self._deadline: float | None = None
        self._last_moment: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def _begin(self, claims: Sequence[Claimed]) -> Execution:
        self.claims = claims
        self._handler = None
        self._execution = Execution(self)
        self._turn = [claims]
        return self._execution

    def _clear(self) -> None:
        if self._reason is not None:
            self._forgive()
        if self._execution is not None:
            self._connection = self._progress = self._collected = self._execution = None
        if self._contexts:
            self._contexts = {}
        self.claims = ()

    def interrupt(self, reason: CutReason, claims: Sequence[Claimed] | None = None) -> bool:
        """Cancel the handler if that is possible. False: it is not, and the handler may see the
        reason in its context. claims: only while these are in progress."""
        # As they are now: a thread may go on to the next event at any moment.
        contexts, handler = self._contexts, self._handler
        if self._reason is not None or not self.claims:
            return False
        self._reason = reason
        if claims is not None and self.claims is not claims:  # it has gone on already
            self._reason = None
            return False
        awaited = self._awaited  # a thread that begins to wait from now on finds the reason
        for context in list(contexts.values()):
            context.cancel(lost=reason is CutReason.LOST)
        if not self._in_thread:
            assert self.task is not None
            return self.task.cancel()
        if awaited is not None:
            return bool(awaited.cancel())
        if reason is CutReason.TIMEOUT and handler is not None and not handler.is_async:
            logger.warning(
                "%s has run for longer than its timeout, and a plain function cannot be "
                "interrupted",
                handler.name,
            )
        return False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._common.loop

    def awaits(self, task: LoopTask | None) -> None:
        """The thread waits for this task from now on, or for none. An interruption from before is
        not passed on: the layers of the handler still have to be left."""
        self._awaited = task

    def _forgive(self) -> None:
        """An interruption has done what it was for."""
        self._reason = self._given_back = None
        if self.task is not None and not self._in_thread:
            while self.task.cancelling():
                self.task.uncancel()

    def _outlive(self) -> None:
        """A plain function has ended after its timeout: that must not interrupt the next one."""
        if self._reason is CutReason.TIMEOUT:
            self._reason = None
            self._contexts = {}

    @property
    def context(self) -> Context | None:
        """The context of the quick handler that runs now, for code that it calls. Other handlers
        ask their Execution."""
        return self._context(is_async=True) if self.claims and self._execution is None else None

    def context_in(self, execution: Execution) -> Context | None:
        """None: it is over."""
        if self._execution is not execution:
            return None
        # While a thread runs the event, async handlers and layers of it run in the loop.
        return self._context(is_async=not self._in_thread or self._is_in_loop())

    def _is_in_loop(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._common.loop
        except RuntimeError:
            return False

    def _context_for(self, handler: Handler) -> Context | None:
        return self._context(handler.is_async) if handler.wants_context else None

    def _context(self, is_async: bool) -> Context:
        """One for all async handlers of an event, and one for all plain ones."""
        context = self._contexts.get(is_async)
        if context is None:
            means = self._common.async_means if is_async else self._common.means
            progress = self._progress
            if self._collected is not None and self._handler is not None:
                means = replace(means, save=self._collected.saving(self._handler, means.save))
                progress = self._collected.saved_by(self._handler)
            kind = AsyncContext if is_async else Context
            context = kind(self.claims[0], means, self._connection, progress)
            self._contexts[is_async] = context
        if self._reason is not None:
            context.cancel(lost=self._reason is CutReason.LOST)
        return context

    def _join(self, connection: Any) -> None:
        """Events that are emitted from now on join this connection's transaction."""
        self._connection = connection
        self._contexts = {}

    def _arm(self, timeout: float) -> None:
        """Interrupt in so long, unless it is over by then. May be called by the thread."""
        self._last_moment = None
        self._deadline = monotonic() + timeout
        if self._in_thread:
            self._common.loop.call_soon_threadsafe(self._set_timer)
        else:
            self._set_timer()

    def _set_timer(self) -> None:
        """The timer is kept from one event to the next: making one for each would cost more than
        most handlers."""
        deadline = self._deadline
        if deadline is None or (self._timer is not None and self._timer_at <= deadline):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._common.loop.call_later(deadline - monotonic(), self._expired)

    def _expired(self) -> None:
        self._timer = None
        # In this order: a thread may go on to the next event at any moment, which then has another
        # turn.
        turn, last_moment, deadline = self._turn, self._last_moment, self._deadline
        if deadline is None:
            return
        now = monotonic()
        if now < deadline:
            self._set_timer()
        elif last_moment is None:
            self._last_moment = self._timer_at = now + UNWINDING
            self._timer = self._common.loop.call_later(UNWINDING, self._expired)
            self.interrupt(CutReason.TIMEOUT)
        elif now < last_moment:
            self._timer_at = last_moment
            self._timer = self._common.loop.call_later(last_moment - now, self._expired)
        else:
            self.abandon(turn)

    def abandon(self, turn: Turn) -> None:
        """Leave a handler alone that did not end when it was interrupted."""
        raise NotImplementedError

    def is_overdue(self, since: float) -> bool:
        """Whether its timeout had passed at a moment in the past. It still runs then only if the
        loop is blocked."""
        deadline = self._deadline
        return deadline is not None and deadline < since

    def __str__(self) -> str:
        """The handler and its event, for logs."""
        handler, claims = self._handler, self.claims
        name = "a handler" if handler is None else handler.name
        if not claims:
            return name
        more = f" and {len(claims) - 1} more" if len(claims) > 1 else ""
        return f"{name} (event {claims[0].id}{more}, {claims[0].type})"


class Execution:
    """The handling of an event, or a batch, that is not quick. The variable `current` holds it. So
    a task that a handler leaves behind is not taken for one of the next event, and does not join
    its transaction."""

    __slots__ = ("_underway",)

    def __init__(self, underway: Underway) -> None:
        self._underway = underway

    @property
    def context(self) -> Context | None:
        return self._underway.context_in(self)

    def loop_task(self) -> LoopTask:
        """For a thread that has something to await in the event loop."""
        return LoopTask(self._underway)
