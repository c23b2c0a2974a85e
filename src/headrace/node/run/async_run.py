"""Runs handlers in the event loop: async ones as they are, plain ones among them in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import copy_context
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import psycopg
from msgspec.structs import replace

from headrace.model import Claimed, Completed, Released, Result
from headrace.node.finish.finisher import Ended
from headrace.node.handler.collect import Collected
from headrace.node.handler.handler import Handler
from headrace.node.handler.plan import Plan
from headrace.node.run.abandoned import Abandoned
from headrace.node.run.attempt import HandlerRun, InTransaction, Steps, milliseconds_since
from headrace.node.run.transaction import (
    AttemptLost,
    ConnectionLost,
    Saving,
    Undone,
    async_transaction,
)
from headrace.node.run.underway import CutReason
from headrace.telemetry.current import current

T = TypeVar("T")


class AsyncRun(HandlerRun):
    """Handles an event, or a batch, in the event loop."""

    __slots__ = ()

    async def _handle_here(
        self, claims: list[Claimed], plan: Plan, collected: Collected | None = None
    ) -> Sequence[Ended]:
        started = perf_counter()
        token = current.set(self._begin(claims))
        try:
            if not any(map(self._holds, claims)):  # lost since they were taken from the buffer
                return ()
            if plan.wants_progress and collected is None:
                self._progress = await self._runs.engine.progress(claims[0])
            if plan.collects:
                self._collected = collected or Collected(claims[0], self._progress)
                return (await self._collect(claims[0], plan, self._collected, started),)
            if plan.alone is not None and len(claims) == 1:  # most events: steps would cost more
                returned = await self._call(plan.alone, claims[0])
                return (plan.alone.result(claims[0], returned, milliseconds_since(started)),)
            return await self._take(self._steps(claims, plan, started))
        except BaseException as error:
            return await self._broke_off(claims, error, started)
        finally:
            current.reset(token)

    async def _take(self, steps: Steps[T]) -> T:
        reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if type(step) is tuple:
                reply = await self._call(*step)
            else:
                reply = await self._take_in_transaction(step)  # type: ignore[arg-type]

    async def _take_in_transaction(self, step: InTransaction) -> Sequence[Ended]:
        pool = await self._runs.pools.for_async()
        try:
            async with async_transaction(pool, step.ending) as connection:
                self._join(connection)
                results = await self._take(step.steps)
                step.ending.check_results(results)
        except Undone as undone:
            return undone.results
        return step.ending.ended(results)

    async def _call(self, handler: Handler, event: Any) -> Any:
        self._handler = handler
        context = self._context_for(handler)
        if handler.timeout is not None:
            self._arm(handler.timeout)
        try:
            if handler.is_async:
                returned = await handler.call(event, self._connection, context)
            else:
                call = partial(handler.call, event, self._connection, context)
                returned = await self._in_a_thread(partial(copy_context().run, call))
                self._outlive()
        finally:
            self._deadline = None
            self._check_abandoned()
        self._check_lost()
        if self._reason is CutReason.SHUTDOWN and not handler.is_async:
            raise asyncio.CancelledError  # the plain function could not be interrupted before
        return returned

    async def _broke_off(
        self, claims: Sequence[Claimed], error: BaseException, started: float
    ) -> Sequence[Ended]:
        """The ends when a handler raised, was interrupted, or lost its transaction."""
        match error:
            case KeyboardInterrupt():
                raise error
            case Abandoned():
                return ()
            case Exception() if self._given_back is not None:
                return ()
            case AttemptLost() | ConnectionLost() if not self._is_lost:
                return await self._unclear(claims, error, started)
        interrupted = self._interrupted(claims, error, started)
        if interrupted is not None:
            return interrupted
        assert self.task is not None
        if isinstance(error, asyncio.CancelledError) and self.task.cancelling():
            raise error  # the program ends the loop
        return self._failed(claims, error, started)

    # Under dispatch="collect"

    async def _collect(
        self, claimed: Claimed, plan: Plan, collected: Collected, started: float
    ) -> Result:
        """Call every handler, whatever becomes of the others. Handlers that an earlier attempt has
        finished are left out."""
        for handler in plan.handlers:
            if collected.is_over(handler):
                continue
            try:
                result = await self._call_alone(handler, claimed, collected, started)
            except asyncio.CancelledError:
                if self._reason is CutReason.SHUTDOWN:
                    return Released(claimed, progress=collected.progress)
                if self._reason is not CutReason.TIMEOUT:
                    raise
                result = self._timed_out(claimed, started)
                self._forgive()
            except (AttemptLost, KeyboardInterrupt, Abandoned):
                raise
            except BaseException as error:
                if self._reason is CutReason.LOST:
                    raise
                if isinstance(error, ConnectionLost):
                    (lost,) = await self._lost_connection([claimed], error, started)
                    return replace(lost, progress=collected.progress)
                ms = milliseconds_since(started)
                result = self._runs.failed(handler, claimed, error, ms)
            collected.note(handler, result)
        return collected.result(milliseconds_since(started))

    async def _call_alone(
        self, handler: Handler, claimed: Claimed, collected: Collected, started: float
    ) -> Result:
        """Call one handler of several. If it asks for the connection it has a transaction of its
        own, which commits the handler's writes together with the note that the handler is done."""
        self._join(None)
        steps = self._call_all(claimed, (handler,), started)
        if not handler.wants_connection:
            (result,) = await self._take(steps)
            return result
        saving = Saving(
            self._runs.engine.names,
            claimed,
            handler.name,
            collected.with_done(handler),
            lambda: collected.with_snooze(handler),
        )
        alone = InTransaction(saving, steps)
        try:
            if handler.is_async:
                (ended,) = await self._take_in_transaction(alone)
            else:
                in_thread = partial(self._take_in_transaction_in_thread, alone)
                (ended,) = await self._in_a_thread(partial(copy_context().run, in_thread))
        except ConnectionLost as lost:
            stored = await self._progress_so_far(claimed) if lost.at_commit else {}
            if handler.name in (stored.get("done") or []):
                return Completed(claimed)
            if saving.snooze is not None and stored.get("snoozed") == collected.snooze_of(handler):
                return saving.snooze
            raise
        return ended  # type: ignore[return-value]

    async def _progress_so_far(self, claimed: Claimed) -> dict[str, Any]:
        """What is known to be stored. A guess would run a handler again that is done."""
        engine = self._runs.engine

        async def look() -> dict[int, Any]:
            await engine.resolve(claimed)  # it waits for a backend that is still committing
            return await engine.queue.progress([claimed.id])

        try:
            found = await self._consumer.finisher.insist(look)
        except psycopg.Error as error:  # the node stops, and PostgreSQL does not answer
            raise AttemptLost([claimed.id]) from error
        return found.get(claimed.id) or {}
