"""Runs handlers in a thread: plain ones as they are, async ones among them in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import Context as Variables
from time import perf_counter
from typing import Any, TypeVar

from headrace.model import Claimed
from headrace.node.finish.finisher import Ended
from headrace.node.handler.handler import Handler
from headrace.node.handler.plan import Plan
from headrace.node.run.attempt import HandlerRun, InTransaction, Steps, milliseconds_since
from headrace.node.run.transaction import AttemptLost, ConnectionLost, Undone, transaction
from headrace.node.run.underway import taken
from headrace.telemetry.current import current

T = TypeVar("T")

TELL_EVERY = 0.005  # seconds for which a thread keeps its results


class ThreadedRun(HandlerRun):
    """Handles one event after the other in a thread."""

    __slots__ = ()

    def _work_off(self, claims: list[Claimed], plan: Plan, variables: Variables) -> None:
        """Handle these events, and go on while the buffer has others for threads."""
        tell = self._runs.loop.call_soon_threadsafe
        tell_at = perf_counter() + TELL_EVERY
        while True:
            results = variables.copy().run(self._handle_in_thread, claims, plan)
            if taken(self._turn) is None:
                return  # the loop gave the events up, and this thread with them
            self._ended.extend(results)
            self._clear()
            if perf_counter() >= tell_at:
                tell(self.tell_ended)
                tell_at = perf_counter() + TELL_EVERY
            following = self._next_for_thread()
            if following is None:
                return
            claims, plan = following

    def _next_for_thread(self) -> tuple[list[Claimed], Plan] | None:
        consumer = self._consumer
        if consumer.lane.batch or consumer.slots.are_wanted:
            return None
        try:
            claimed = consumer.buffer.popleft()
        except IndexError:
            return None
        plan = self._runs.plan(claimed)
        if not plan.in_thread or not plan.suits(claimed):
            consumer.buffer.appendleft(claimed)
            return None
        if len(consumer.buffer) <= consumer.few:
            self._runs.loop.call_soon_threadsafe(consumer.took)
        return [claimed], plan

    def _handle_in_thread(self, claims: list[Claimed], plan: Plan) -> Sequence[Ended]:
        started = perf_counter()
        current.set(self._begin(claims))
        try:
            if not any(map(self._holds, claims)):  # lost since they were taken from the buffer
                return ()
            if plan.wants_progress and claims[0].attempt > 1:
                self._progress = self._in_loop(self._runs.engine.progress(claims[0]))
            if plan.alone is not None and len(claims) == 1:  # most events: steps would cost more
                returned = self._call_in_thread(plan.alone, claims[0])
                return (plan.alone.result(claims[0], returned, milliseconds_since(started)),)
            return self._take_in_thread(self._steps(claims, plan, started))
        except BaseException as error:
            if not self._turn:
                return ()  # the loop gave the events up, and may be closed
            if isinstance(error, AttemptLost | ConnectionLost) and not self._is_lost:
                return self._in_loop(self._unclear(claims, error, started))
            interrupted = self._interrupted(claims, error, started)
            return self._failed(claims, error, started) if interrupted is None else interrupted

    def _take_in_thread(self, steps: Steps[T]) -> T:
        reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if type(step) is tuple:
                reply = self._call_in_thread(*step)
            else:
                reply = self._take_in_transaction_in_thread(step)  # type: ignore[arg-type]

    def _take_in_transaction_in_thread(self, step: InTransaction) -> Sequence[Ended]:
        try:
            with transaction(self._runs.pools.for_plain(), step.ending) as connection:
                self._join(connection)
                results = self._take_in_thread(step.steps)
                step.ending.check_results(results)
        except Undone as undone:
            return undone.results
        return step.ending.ended(results)

    def _call_in_thread(self, handler: Handler, event: Any) -> Any:
        self._handler = handler
        context = self._context_for(handler)
        if handler.timeout is not None:
            self._arm(handler.timeout)
        try:
            returned = handler.call(event, self._connection, context)
            if handler.is_async:
                self._awaited = asyncio.run_coroutine_threadsafe(returned, self._runs.loop)
                if self._reason is not None:  # it came before there was a future to cancel
                    self._awaited.cancel()
                returned = self._awaited.result()
            else:
                self._outlive()
        finally:
            self._awaited = self._deadline = None
            self._check_abandoned()
        self._check_lost()
        return returned
