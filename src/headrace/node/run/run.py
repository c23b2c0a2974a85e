"""A run: a task that handles one event after the other while there are any.

A run starts with a slot, and starts the next run before it begins to work. So there are as many
runs as there are handlers that wait for something. An event is handled in the event loop
(AsyncRun) or in a thread (ThreadedRun), as its plan says; with a transaction if a handler asks for
a connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from headrace.driver.disconnect import disconnect
from headrace.model import Claimed, Released, Result
from headrace.node.claim.consumer import Consumer
from headrace.node.finish.finisher import Ended
from headrace.node.handler.collect import Collected
from headrace.node.run.async_run import AsyncRun
from headrace.node.run.threaded_run import ThreadedRun
from headrace.node.run.underway import CutReason, Turn, taken

if TYPE_CHECKING:
    from headrace.node.run.runs import Runs

logger = logging.getLogger("headrace.node")

BURST = 0.005  # seconds for which handlers that wait for nothing may keep the loop
RAMP = 0.001  # seconds before one more thread is put to work


class Run(AsyncRun, ThreadedRun):
    """Handles the events of a consumer, one at a time."""

    __slots__ = ("_abandoned_at", "_keeps_slot", "_lent")

    def __init__(self, runs: Runs, consumer: Consumer) -> None:
        super().__init__(runs, consumer)
        self._keeps_slot = True
        self._abandoned_at = 0.0
        self._lent: Any = None  # the connection of an abandoned handler

    async def work(self, first: Callable[[Run], Coroutine[Any, Any, None]] | None = None) -> None:
        """Handle events while there are any. `first` goes on with the event of another run."""
        try:
            if first is not None:
                await first(self)
            await self._handle_all(self._consumer)
        except Exception:
            logger.exception("a run of handlers has failed and ends; the other runs go on")
        finally:
            self.claims = ()
            if self._timer is not None:
                self._timer.cancel()
            self._runs.running.discard(self)
            if self.is_abandoned:
                self._came_back()
            if self._keeps_slot:
                self._consumer.slots.give()
                self._consumer.start()

    async def _handle_all(self, consumer: Consumer) -> None:  # noqa: C901  (every event comes through here)
        """Handle all events that there are, until another lane has its turn."""
        variables = copy_context()
        buffer, runs = consumer.buffer, self._runs
        type = tags = plans = handler = None
        self._start_next(consumer)
        started = perf_counter()
        rest_at = started + BURST
        while True:
            try:
                claimed = buffer.popleft()
            except IndexError:  # the length is not asked beforehand: threads take events too
                return
            # Most events were claimed together with the one before, and have its type and tags.
            if claimed.type is not type or claimed.tags is not tags or runs.plans is not plans:
                type, tags, plans = claimed.type, claimed.tags, runs.plans
                handler = runs.plan(claimed).quick
            if handler is None:
                await self._handle(self._with_others(claimed))
            else:
                if len(buffer) <= consumer.few:
                    consumer.took()
                self.claims = (claimed,)
                self._handler = handler
                try:
                    returned = await handler.call(claimed, None, None)
                    ms = int((perf_counter() - started) * 1000)
                    result = None if returned is None else handler.result(claimed, returned, ms)
                except BaseException as error:
                    await self._end(self.claims, self._broke_off(self.claims, error, started))
                else:
                    if self._given_back is None:
                        if result is None:
                            consumer.finisher.complete(claimed, ms)
                        else:
                            consumer.finisher.end(result)
                    if self._reason is None and not self._contexts:
                        self.claims = ()
                    else:
                        self._clear()
            if self.is_abandoned or consumer.slots.are_wanted or copy_context() != variables:
                # Another lane waits for the slot; or a handler has left a context variable behind,
                # which the next event must not see.
                return
            started = perf_counter()
            if started >= rest_at:
                await asyncio.sleep(0)
                started = perf_counter()
                rest_at = started + BURST

    def _start_next(self, consumer: Consumer) -> None:
        try:
            in_thread = self._runs.plan(consumer.buffer[0]).in_thread
        except IndexError:
            return
        if in_thread:
            # One thread will do while there are no more events than it can handle in a moment.
            self._runs.loop.call_later(RAMP, consumer.start)
        else:
            consumer.start()

    def _with_others(self, claimed: Claimed) -> list[Claimed]:
        """The event alone, or with as many others as a batch of its lane may have."""
        together = [claimed]
        with suppress(IndexError):
            while len(together) < self._consumer.lane.batch:
                together.append(self._consumer.buffer.popleft())
        self._consumer.took()
        return together

    async def _handle(self, claims: list[Claimed]) -> None:
        plan = self._runs.plan(claims[0])
        if not plan.suits(claims[0]):
            self._consumer.finisher.end_all(map(Released, claims))
        elif plan.in_thread:
            try:
                await self._in_a_thread(partial(self._work_off, claims, plan, copy_context()))
            except BaseException:
                self.give_back()  # for the same reason as in _end
                raise
            finally:
                self.tell_ended()
        else:
            await self._end(claims, self._handle_here(claims, plan))

    async def _end(
        self, claims: Sequence[Claimed], handling: Coroutine[Any, Any, Sequence[Ended]]
    ) -> None:
        finisher = self._consumer.finisher
        try:
            ended = await handling
            if self._given_back is None:
                finisher.end_all(ended)
        except BaseException:
            # Their end is not known. They must not stay: the node renews their lease while it
            # lives.
            finisher.end_all(map(Released, claims))
            raise
        finally:
            self._clear()

    # Events that are given up while their handler runs

    def give_back(self) -> None:
        """Hand back the events of a handler that cannot be interrupted. How the handler ends does
        not matter any more."""
        self.tell_ended()
        claims = self._given_up(self._turn)
        if claims:
            self._cut()
            self._consumer.finisher.end_all(map(Released, claims))

    def give_up(self) -> Sequence[Claimed]:
        """The events in progress, for another thread that hands them back while the loop is
        blocked."""
        return self._given_up(self._turn)

    def give_up_late(self) -> Sequence[Result]:
        """The same for events whose timeout has passed, with their ends as failures."""
        claims, handler = self._given_up(self._turn), self._handler
        if handler is None or handler.timeout is None:
            return ()
        return [self._timed_out(claimed, perf_counter() - handler.timeout) for claimed in claims]

    def _given_up(self, turn: Turn) -> Sequence[Claimed]:
        """The events in progress that were not given up before. From now on how their handler ends
        does not matter any more."""
        claims = self.claims if self._execution is None else taken(turn)
        if not claims or self._given_back is not None:
            return ()
        self._given_back = claims
        return claims

    def _cut(self) -> None:
        """End the transaction of a given-up handler: it keeps no locks and commits nothing."""
        if self._connection is not None:
            disconnect(self._connection)

    def abandon(self, turn: Turn) -> None:
        self.tell_ended()
        claims = self._given_up(turn)
        if not (claims or self._given_back) or self._reason is CutReason.SHUTDOWN:
            return  # it has just ended, or the node is about to leave it behind
        runs, handler, collected = self._runs, self._handler, self._collected
        self.is_abandoned = True
        self._abandoned_at = perf_counter()
        logger.error(
            "%s is abandoned: it has not ended after its timeout. Its event has failed, and "
            "the handler can change nothing any more. Its thread or task is left behind",
            self,
        )
        self._cut()
        self._lent = self._connection
        if self._lent is not None:
            runs.pools.spare(self._lent, 1)
        results: Sequence[Result] = ()
        if self._reason is CutReason.LOST:
            collected, results = None, [Released(claimed) for claimed in claims]
        elif handler is not None and handler.timeout:
            since = perf_counter() - handler.timeout
            results = [self._timed_out(claimed, since) for claimed in claims]
        self._keeps_slot = runs.abandoned.is_full
        runs.running.discard(self)
        if results and collected is not None and handler is not None:
            # The event's other handlers are still to run, and no retry may be left for them.
            collected.note(handler, results[0])
            self._keeps_slot = False
            runs.start(self._consumer, partial(Run._go_on, claims=claims, collected=collected))
        else:
            self._consumer.finisher.end_all(results)
            if not self._keeps_slot:
                self._consumer.slots.give()
                self._consumer.start()
        runs.abandoned.add(self)

    def _came_back(self) -> None:
        self._runs.abandoned.remove(self)
        if self._lent is not None:
            self._runs.pools.spare(self._lent, -1)
        logger.info(
            "%s has ended %.1f s after it was abandoned; that changes nothing",
            "a handler" if self._handler is None else self._handler.name,
            perf_counter() - self._abandoned_at,
        )

    async def _go_on(self, claims: Sequence[Claimed], collected: Collected) -> None:
        """Run the remaining handlers of an event after one of them was abandoned."""
        [claimed] = claims
        await self._end(claims, self._handle_here([claimed], self._runs.plan(claimed), collected))
