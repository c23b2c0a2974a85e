"""Runs handlers: async ones in tasks, plain ones in threads, in a transaction those that ask for a connection.

A run is a task that handles one event after the other while there are any. It is put to work with a slot, and
starts the next run before it begins, so that there are as many as handlers that wait for something.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from msgspec.structs import replace

from headrace.errors import HeadraceError
from headrace.model import Claimed, Completed, CutOff, Released, Result
from headrace.node.abandonment import Abandoned, cut
from headrace.node.collecting import Collected
from headrace.node.consuming import Consumer
from headrace.node.context import current
from headrace.node.finishing import Ended, Settled
from headrace.node.handlers import Handler
from headrace.node.plans import Plan
from headrace.node.transactions import (
    AttemptLost,
    ConnectionLost,
    Ending,
    Saving,
    Undone,
    async_transaction,
    transaction,
)
from headrace.node.underway import Reason, Turn, Underway, taken

if TYPE_CHECKING:
    from headrace.node.runners import Runners

logger = logging.getLogger("headrace.node")

T = TypeVar("T")

# Seconds that handlers which wait for nothing may keep the loop, or a thread its results.
BURST = 0.005
RAMP = 0.001  # seconds before one more thread is put to work


class Run(Underway):
    """Handles the events of a consumer, one at a time."""

    __slots__ = ("_abandoned_at", "_consumer", "_keeps_slot", "_lent", "_runners")

    def __init__(self, runners: Runners, consumer: Consumer) -> None:
        super().__init__(runners)
        self._runners = runners
        self._consumer = consumer
        self._keeps_slot = True
        self._abandoned_at = 0.0
        self._lent: Any = None  # a connection that an abandoned handler has

    async def work(self, first: Callable[[Run], Coroutine[Any, Any, None]] | None = None) -> None:
        """Handle events while there are any; `first` what another run has begun."""
        try:
            if first is not None:
                await first(self)
            await self._handle_all(self._consumer)
        except Exception:
            logger.exception("handlers are run no longer by this run; others go on")
        finally:
            self.claims = ()
            if self._timer is not None:
                self._timer.cancel()
            self._runners.running.discard(self)
            if self.is_abandoned:
                self._came_back()
            if self._keeps_slot:
                self._consumer.slots.give()
                self._consumer.start()

    async def _handle_all(self, consumer: Consumer) -> None:  # noqa: C901  (every event comes through here)
        """All that there are, unless it is another's turn."""
        variables = copy_context()
        buffer, runners = consumer.buffer, self._runners
        type = tags = plans = handler = None
        self._start_next(consumer)
        started = perf_counter()
        rest_at = started + BURST
        while True:
            try:
                claimed = buffer.popleft()
            except IndexError:  # not asked beforehand: threads take too
                return
            # Most were claimed together with the one before, and so are of one kind with it.
            if claimed.type is not type or claimed.tags is not tags or runners.plans is not plans:
                type, tags, plans = claimed.type, claimed.tags, runners.plans
                handler = runners.plan(claimed).quick
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
                return  # another's turn; or a handler left something behind that is not for the next
            started = perf_counter()
            if started >= rest_at:
                await asyncio.sleep(0)
                started = perf_counter()
                rest_at = started + BURST

    def give_back(self) -> None:
        """Hand back what runs and cannot be interrupted: how it ends does not matter any more."""
        self.tell_ended()
        claims = self._given_up(self._turn)
        if claims:
            self._cut()
            self._consumer.finisher.end_all(map(Released, claims))

    def _given_up(self, turn: Turn) -> Sequence[Claimed]:
        """What runs and has not been given up yet: from now on how it ends does not matter any more."""
        claims = self.claims if self._execution is None else taken(turn)
        if not claims or self._given_back is not None:
            return ()
        self._given_back = claims
        return claims

    def _cut(self) -> None:
        """End the transaction of a handler that is given up, so that it holds no locks and commits nothing."""
        if self._connection is not None:
            cut(self._connection)

    def tell_ended(self) -> None:
        """Tell of what a thread has done so far. The event that it is at may take as long as it likes."""
        ended = self._ended
        if ended:  # to which the thread may add meanwhile, and from which nobody else takes
            self._consumer.finisher.end_all([ended.popleft() for _ in range(len(ended))])

    def abandon(self, turn: Turn) -> None:
        self.tell_ended()
        claims = self._given_up(turn)
        if not (claims or self._given_back) or self._reason is Reason.SHUTDOWN:
            return  # it has just ended, or the node is about to leave it behind
        runners, handler, collected = self._runners, self._handler, self._collected
        self.is_abandoned = True
        self._abandoned_at = perf_counter()
        logger.error(
            "%s is abandoned: it has not ended though its timeout has passed. Its event has failed, and what it still "
            "does changes nothing. Its thread or task is left behind",
            self,
        )
        self._cut()
        self._lent = self._connection
        if self._lent is not None:
            runners.pools.spare(self._lent, 1)
        results: Sequence[Result] = ()
        if self._reason is not Reason.LOST and handler is not None and handler.timeout:
            results = [self._late(claimed, perf_counter() - handler.timeout) for claimed in claims]
        self._keeps_slot = runners.abandoned.is_full
        runners.running.discard(self)
        if results and collected is not None and handler is not None:
            # The event's other handlers are still to run, and no retry may be left for them.
            collected.note(handler, results[0])
            self._keeps_slot = False
            runners.start(self._consumer, partial(Run._go_on, claims=claims, collected=collected))
        else:
            self._consumer.finisher.end_all(results)
            if not self._keeps_slot:
                self._consumer.slots.give()
                self._consumer.start()
        runners.abandoned.add(self)

    def give_up(self) -> Sequence[Claimed]:
        """What runs, for another thread that hands it back while the loop is blocked."""
        return self._given_up(self._turn)

    def give_up_late(self) -> Sequence[Result]:
        """The same from another thread, while the loop is blocked: how it ends is told there."""
        claims, handler = self._given_up(self._turn), self._handler
        if handler is None or handler.timeout is None:
            return ()
        return [self._late(claimed, perf_counter() - handler.timeout) for claimed in claims]

    def _came_back(self) -> None:
        self._runners.abandoned.remove(self)
        if self._lent is not None:
            self._runners.pools.spare(self._lent, -1)
        logger.info(
            "%s has ended after all, %.1f s after it was abandoned; that changes nothing",
            "a handler" if self._handler is None else self._handler.name,
            perf_counter() - self._abandoned_at,
        )

    def _check_abandoned(self) -> None:
        """Call no other handler for an event that was given up."""
        if self.is_abandoned:
            raise Abandoned

    async def _go_on(self, claims: Sequence[Claimed], collected: Collected) -> None:
        """Run the other handlers of an event, one of whose handlers was abandoned."""
        [claimed] = claims
        await self._end(
            claims, self._handle_here([claimed], self._runners.plan(claimed), collected)
        )

    def _start_next(self, consumer: Consumer) -> None:
        try:
            in_thread = self._runners.plan(consumer.buffer[0]).in_thread
        except IndexError:
            return
        if in_thread:
            # As long as there are no more events than one thread can do in a moment, one will do.
            self._runners.loop.call_later(RAMP, consumer.start)
        else:
            consumer.start()

    def _with_others(self, claimed: Claimed) -> list[Claimed]:
        """It alone, or as many as a batch may have."""
        taken = [claimed]
        with suppress(IndexError):
            while len(taken) < self._consumer.lane.batch:
                taken.append(self._consumer.buffer.popleft())
        self._consumer.took()
        return taken

    async def _handle(self, claims: list[Claimed]) -> None:
        plan = self._runners.plan(claims[0])
        if not plan.suits(claims[0]):
            self._consumer.finisher.end_all(map(Released, claims))
        elif plan.in_thread:
            try:
                await self._in_a_thread(partial(self._work_off, claims, plan, copy_context()))
            except BaseException:
                self.give_back()  # as _end does: their lease is renewed as long as we live
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
            # We do not know better, and must not keep them: their lease is renewed as long as we live.
            finisher.end_all(map(Released, claims))
            raise
        finally:
            self._clear()

    async def _in_a_thread(self, work: Callable[[], T]) -> T:
        """What a plain function does cannot be interrupted, so it is waited for."""
        self._in_thread = True
        try:
            return await self._runners.threads.run(work)
        finally:
            self._in_thread = False

    # In the event loop

    async def _handle_here(
        self, claims: list[Claimed], plan: Plan, collected: Collected | None = None
    ) -> Sequence[Ended]:
        started = perf_counter()
        token = current.set(self._begin(claims))
        try:
            if plan.wants_progress and collected is None:
                self._progress = await self._runners.engine.progress(claims[0])
            if plan.collects:
                self._collected = collected or Collected(claims[0], self._progress)
                return (await self._collect(claims[0], plan, self._collected, started),)
            if plan.is_transactional or self._consumer.lane.batch:
                return await self._handle_together(claims, plan, started)
            return (await self._call_all(claims[0], plan.handlers, started),)
        except BaseException as error:
            return await self._broke_off(claims, error, started)
        finally:
            current.reset(token)

    async def _broke_off(
        self, claims: Sequence[Claimed], error: BaseException, started: float
    ) -> Sequence[Ended]:
        """How it ends when a handler did not come to its end."""
        match error:
            case KeyboardInterrupt():
                raise error
            case Abandoned():
                return ()
            case Exception() if self._given_back is not None:
                return ()
            case AttemptLost() | ConnectionLost():
                return await self._unclear(claims, error, started)
        interrupted = self._interrupted(claims, error, started)
        if interrupted is not None:
            return interrupted
        assert self.task is not None
        if isinstance(error, asyncio.CancelledError) and self.task.cancelling():
            raise error  # by somebody who ends the loop
        return self._failed(claims, error, started)

    async def _handle_together(
        self, claims: list[Claimed], plan: Plan, started: float
    ) -> Sequence[Ended]:
        """A batch, or a transaction, or both."""
        handler = plan.handlers[0]
        unfit: list[Result] = []
        if self._consumer.lane.batch:
            claims, given, unfit = handler.read(claims)
        if not claims:
            return unfit

        async def call() -> list[Result]:
            if not self._consumer.lane.batch:
                return [await self._call_all(claims[0], plan.handlers, started)]
            return handler.results(claims, await self._call(handler, given), _since(started))

        if not plan.is_transactional:
            return [*unfit, *await call()]
        ending = self._ending(claims, plan, started)
        pool = await self._runners.pools.for_async()
        try:
            async with async_transaction(pool, ending) as connection:
                self._join(connection)
                results = await call()
                ending.check_results(results)
        except Undone as undone:
            return [*unfit, *undone.results]
        return [*unfit, *map(Settled, results)]

    async def _collect(
        self, claimed: Claimed, plan: Plan, collected: Collected, started: float
    ) -> Result:
        """Each handler on its own, whatever becomes of the others; those that were done before are left out."""
        for handler in plan.handlers:
            if collected.is_over(handler):
                continue
            try:
                saved = collected.with_done(handler)
                result = await self._call_alone(handler, claimed, saved, started)
            except asyncio.CancelledError:
                if self._reason is Reason.SHUTDOWN:
                    return Released(claimed, progress=collected.progress)
                if self._reason is not Reason.TIMEOUT:
                    raise
                result = self._late(claimed, started)
                self._forgive()
            except (AttemptLost, KeyboardInterrupt, Abandoned):
                raise
            except BaseException as error:
                if isinstance(error, ConnectionLost):
                    (lost,) = await self._lost_connection([claimed], error, started)
                    return replace(lost, progress=collected.progress)
                result = self._runners.failed(handler, claimed, error, _since(started))
            collected.note(handler, result)
        return collected.result(_since(started))

    async def _call_alone(
        self, handler: Handler, claimed: Claimed, saved: Any, started: float
    ) -> Result:
        """One of several, in a transaction of its own if it asks for the connection: what it writes and the note
        that it is done are committed together."""
        self._join(None)
        if not handler.wants_connection:
            return handler.result(claimed, await self._call(handler, claimed), _since(started))
        saving = Saving(self._runners.engine.names, claimed, handler.name, saved)
        try:
            if not handler.is_async:
                alone = partial(self._alone_plainly, handler, claimed, saving, started)
                return await self._in_a_thread(partial(copy_context().run, alone))
            pool = await self._runners.pools.for_async()
            async with async_transaction(pool, saving) as connection:
                self._join(connection)
                returned = await self._call(handler, claimed)
                result = handler.result(claimed, returned, _since(started))
                saving.check_results([result])
            return result
        except Undone as undone:
            return undone.results[0]
        except ConnectionLost as lost:
            if not lost.at_commit or handler.name not in await self._done_so_far(claimed):
                raise
            return Completed(claimed)

    def _alone_plainly(
        self, handler: Handler, claimed: Claimed, saving: Saving, started: float
    ) -> Result:
        with transaction(self._runners.pools.for_plain(), saving) as connection:
            self._join(connection)
            result = handler.result(claimed, self._call_plainly(handler, claimed), _since(started))
            saving.check_results([result])
        return result

    async def _done_so_far(self, claimed: Claimed) -> list[str]:
        """Those that are known to be done. To guess would mean to do one again that is."""
        engine = self._runners.engine

        async def look() -> dict[int, Any]:
            await engine.resolve(claimed)  # which waits for a backend that is still committing it
            return await engine.queue.progress([claimed.id])

        try:
            found = await self._consumer.finisher.insist(look)
        except psycopg.Error as error:  # the node stops, and PostgreSQL is away
            raise AttemptLost([claimed.id]) from error
        return (found.get(claimed.id) or {}).get("done") or []

    async def _call_all(
        self, claimed: Claimed, handlers: Sequence[Handler], started: float
    ) -> Result:
        """One after the other; the first that does not succeed is the last."""
        result: Result = Completed(claimed)
        for handler in handlers:
            returned = await self._call(handler, claimed)
            result = handler.result(claimed, returned, _since(started))
            if type(result) is not Completed:
                break
        return result

    async def _call(self, handler: Handler, event: Any) -> Any:
        self._handler = handler
        context = self._context_for(handler)
        if handler.timeout is not None:
            self._arm(handler.timeout)
        try:
            if handler.is_async:
                return await handler.call(event, self._connection, context)
            call = partial(handler.call, event, self._connection, context)
            returned = await self._in_a_thread(partial(copy_context().run, call))
            self._outlive()
        finally:
            self._deadline = None
            self._check_abandoned()
        if self._reason in (Reason.LOST, Reason.SHUTDOWN):
            raise asyncio.CancelledError  # now that we can
        return returned

    # In a thread

    def _work_off(self, claims: list[Claimed], plan: Plan, variables: Variables) -> None:
        """Handle these, and go on with others as long as there are some for threads."""
        tell = self._runners.loop.call_soon_threadsafe
        tell_at = perf_counter() + BURST
        while True:
            results = variables.copy().run(self._handle_plainly, claims, plan)
            if taken(self._turn) is None:
                return  # it was given up, and with it this thread
            self._ended.extend(results)
            self._clear()
            if perf_counter() >= tell_at:
                tell(self.tell_ended)
                tell_at = perf_counter() + BURST
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
        plan = self._runners.plan(claimed)
        if not plan.in_thread or not plan.suits(claimed):
            consumer.buffer.appendleft(claimed)
            return None
        if len(consumer.buffer) <= consumer.few:
            self._runners.loop.call_soon_threadsafe(consumer.took)
        return [claimed], plan

    def _handle_plainly(self, claims: list[Claimed], plan: Plan) -> Sequence[Ended]:
        started = perf_counter()
        current.set(self._begin(claims))
        try:
            if plan.wants_progress and claims[0].attempt > 1:
                self._progress = self._in_loop(self._runners.engine.progress(claims[0]))
            if plan.is_transactional or self._consumer.lane.batch:
                return self._handle_together_plainly(claims, plan, started)
            return (self._call_all_plainly(claims[0], plan.handlers, started),)
        except BaseException as error:
            if not self._turn:
                return ()  # it was given up, and the loop may be closed
            if isinstance(error, AttemptLost | ConnectionLost):
                return self._in_loop(self._unclear(claims, error, started))
            interrupted = self._interrupted(claims, error, started)
            return self._failed(claims, error, started) if interrupted is None else interrupted

    def _handle_together_plainly(
        self, claims: list[Claimed], plan: Plan, started: float
    ) -> Sequence[Ended]:
        handler = plan.handlers[0]
        unfit: list[Result] = []
        if self._consumer.lane.batch:
            claims, given, unfit = handler.read(claims)
        if not claims:
            return unfit

        def call() -> list[Result]:
            if not self._consumer.lane.batch:
                return [self._call_all_plainly(claims[0], plan.handlers, started)]
            return handler.results(claims, self._call_plainly(handler, given), _since(started))

        if not plan.is_transactional:
            return [*unfit, *call()]
        ending = self._ending(claims, plan, started)
        try:
            with transaction(self._runners.pools.for_plain(), ending) as connection:
                self._join(connection)
                results = call()
                ending.check_results(results)
        except Undone as undone:
            return [*unfit, *undone.results]
        return [*unfit, *map(Settled, results)]

    def _call_all_plainly(
        self, claimed: Claimed, handlers: Sequence[Handler], started: float
    ) -> Result:
        result: Result = Completed(claimed)
        for handler in handlers:
            returned = self._call_plainly(handler, claimed)
            result = handler.result(claimed, returned, _since(started))
            if type(result) is not Completed:
                break
        return result

    def _in_loop(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._runners.loop).result()

    def _call_plainly(self, handler: Handler, event: Any) -> Any:
        self._handler = handler
        context = self._context_for(handler)
        if handler.timeout is not None:
            self._arm(handler.timeout)
        try:
            returned = handler.call(event, self._connection, context)
            if not handler.is_async:
                self._outlive()
                return returned
            self._awaited = asyncio.run_coroutine_threadsafe(returned, self._runners.loop)
            if self._reason is not None:  # which came before there was anything to cancel
                self._awaited.cancel()
            return self._awaited.result()
        finally:
            self._awaited = self._deadline = None
            self._check_abandoned()

    # Both

    def _ending(self, claims: Sequence[Claimed], plan: Plan, started: float) -> Ending:
        who = ", ".join(handler.name for handler in plan.handlers if handler.wants_connection)
        return Ending(self._runners.engine.names, claims, who, partial(_since, started))

    def _failed(
        self, claims: Sequence[Claimed], error: BaseException, started: float
    ) -> list[Result]:
        handler = self._handler or self._runners.handlers.of(claims[0])[0]
        ms = _since(started)
        return [self._runners.failed(handler, claimed, error, ms) for claimed in claims]

    def _interrupted(
        self, claims: Sequence[Claimed], error: BaseException, started: float
    ) -> Sequence[Ended] | None:
        """How it ends if it was us who interrupted it, whatever a handler makes of that."""
        match self._reason:
            case Reason.LOST:
                return []
            case Reason.SHUTDOWN:
                return [Released(claimed) for claimed in claims]
            case Reason.TIMEOUT if isinstance(error, asyncio.CancelledError | CancelledError):
                return [self._late(claimed, started) for claimed in claims]
        return None

    def _late(self, claimed: Claimed, started: float) -> Result:
        assert self._handler is not None
        error = TimeoutError(f"not done after {self._handler.timeout:g} seconds")
        return self._runners.failed(self._handler, claimed, error, _since(started))

    async def _unclear(
        self, claims: Sequence[Claimed], error: AttemptLost | ConnectionLost, started: float
    ) -> Sequence[Ended]:
        """What became of a transaction whose end we did not hear of, or were refused."""
        if isinstance(error, AttemptLost):
            logger.warning("leases were lost, so nothing was committed: events %s", error.ids)
            return [
                Settled(Completed(claimed), counted=False)
                if claimed.id in error.ids
                else Released(claimed)
                for claimed in claims
            ]
        if error.at_commit and await self._is_committed(claims[0]):
            return [Settled(Completed(claimed, _since(started))) for claimed in claims]
        return await self._lost_connection(claims, error, started)

    async def _lost_connection(
        self, claims: Sequence[Claimed], lost: ConnectionLost, started: float
    ) -> Sequence[Released | CutOff]:
        """Nobody knows which of the handlers that ran caused it, so all of them are suspects. Unless the server says that it was none of
        these: another session crashed, or the server itself was started anew after an order to stop."""
        if lost.is_innocent or (lost.is_shutdown and await self._is_restarted(started)):
            return [Released(claimed) for claimed in claims]
        handler = self._handler or self._runners.handlers.of(claims[0])[0]
        logger.warning(
            "the connection was lost under %s, which is suspected from now on to be the cause: events %s, %s",
            handler.name,
            [claimed.id for claimed in claims],
            lost,
        )
        return [handler.cut_off(claimed, str(lost), _since(started)) for claimed in claims]

    async def _is_restarted(self, started: float) -> bool:
        started_within = self._runners.engine.started_within
        with suppress(psycopg.Error, HeadraceError):
            return await self._consumer.finisher.insist(
                lambda: started_within(perf_counter() - started)
            )
        return False

    async def _is_committed(self, claimed: Claimed) -> bool:
        """As soon as anybody can say so. If the node stops before that, nothing else can be made of it: what is
        committed cannot be handed back."""
        resolve = self._runners.engine.resolve
        with suppress(psycopg.Error, HeadraceError):
            ended = await self._consumer.finisher.insist(lambda: resolve(claimed))
            return ended == "COMPLETED"
        return False


def _since(started: float) -> int:
    return int((perf_counter() - started) * 1000)
