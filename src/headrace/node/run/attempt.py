"""The part of a run that both ways share: the steps of its handlers, and how a failed attempt ends.

The steps are generators. `AsyncRun` takes them in the event loop, `ThreadedRun` in a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import psycopg

from headrace.errors import HeadraceError
from headrace.model import Claimed, Completed, CutOff, Released, Result
from headrace.node.claim.consumer import Consumer
from headrace.node.finish.finisher import Ended, Settled
from headrace.node.handler.handler import Handler
from headrace.node.handler.plan import Plan
from headrace.node.run.abandoned import Abandoned
from headrace.node.run.transaction import AttemptLost, ConnectionLost, Ending
from headrace.node.run.underway import CutReason, Underway

if TYPE_CHECKING:
    from headrace.node.run.runs import Runs

logger = logging.getLogger("headrace.node")

T = TypeVar("T")


class InTransaction(NamedTuple):
    """A step: take these steps in a transaction, which ends as `ending` says. Replies with the
    ends."""

    ending: Ending
    steps: Steps[list[Result]]


Call: TypeAlias = tuple[Handler, Any]
"""A step: call the handler with an event, or with a batch. The reply is its return value."""
Steps: TypeAlias = Generator[Call | InTransaction, Any, T]
"""A handler's exception is never thrown into the steps: it ends them. So the exception keeps its
type, even StopIteration, which no generator lets through."""


class HandlerRun(Underway):
    """The common part of both ways to run handlers."""

    __slots__ = ("_consumer", "_runs")

    def __init__(self, runs: Runs, consumer: Consumer) -> None:
        super().__init__(runs)
        self._runs = runs
        self._consumer = consumer

    def _take_in_transaction_in_thread(self, step: InTransaction) -> Sequence[Ended]:
        """See ThreadedRun. An AsyncRun needs it for plain handlers under dispatch="collect"."""
        raise NotImplementedError

    async def _in_a_thread(self, work: Callable[[], T]) -> T:
        """Wait for a plain function: it cannot be interrupted."""
        self._in_thread = True
        try:
            return await self._runs.threads.run(work)
        finally:
            self._in_thread = False

    def tell_ended(self) -> None:
        """Report the events that the thread has finished so far. Its present event may take as
        long as it likes."""
        ended = self._ended
        if ended:  # the thread may append to it meanwhile; only this method takes from it
            self._consumer.finisher.end_all([ended.popleft() for _ in range(len(ended))])

    def _check_abandoned(self) -> None:
        """Call no other handler for an event that was given up."""
        if self.is_abandoned:
            raise Abandoned

    def _check_lost(self) -> None:
        """Call no other handler for an event that was lost, whatever the last one made of its
        interruption. A batch has one handler: it has ended, and the events of it that were not
        lost have their results."""
        if self._is_lost:
            raise asyncio.CancelledError

    @property
    def _is_lost(self) -> bool:
        return self._reason is CutReason.LOST and not any(map(self._holds, self.claims))

    def _holds(self, claimed: Claimed) -> bool:
        return self._consumer.finisher.holds(claimed)

    # The steps

    def _steps(self, claims: list[Claimed], plan: Plan, started: float) -> Steps[Sequence[Ended]]:
        if plan.is_transactional or self._consumer.lane.batch:
            return self._handle_together(claims, plan, started)
        return self._call_all(claims[0], plan.handlers, started)

    def _handle_together(
        self, claims: list[Claimed], plan: Plan, started: float
    ) -> Steps[Sequence[Ended]]:
        """Handle a batch, or in a transaction, or both."""
        unfit: list[Result] = []
        if self._consumer.lane.batch:
            handler = plan.handlers[0]
            claims, payloads, unfit = handler.read(claims)
            if not claims:
                return unfit
            calls = self._call_batch(handler, claims, payloads, started)
        else:
            calls = self._call_all(claims[0], plan.handlers, started)
        if not plan.is_transactional:
            return [*unfit, *(yield from calls)]
        ended = yield InTransaction(self._ending(claims, plan, started), calls)
        return [*unfit, *ended]

    def _call_batch(
        self, handler: Handler, claims: list[Claimed], payloads: list[Any], started: float
    ) -> Steps[list[Result]]:
        returned = yield handler, payloads
        return handler.results(claims, returned, milliseconds_since(started))

    def _call_all(
        self, claimed: Claimed, handlers: Sequence[Handler], started: float
    ) -> Steps[list[Result]]:
        """Call one handler after the other, until one does not succeed."""
        result: Result = Completed(claimed)
        for handler in handlers:
            returned = yield handler, claimed
            result = handler.result(claimed, returned, milliseconds_since(started))
            if type(result) is not Completed:
                break
        return [result]

    def _ending(self, claims: Sequence[Claimed], plan: Plan, started: float) -> Ending:
        names = ", ".join(handler.name for handler in plan.handlers if handler.wants_connection)
        ms = partial(milliseconds_since, started)
        is_of_one = len(plan.handlers) == 1
        return Ending(self._runs.engine.names, claims, names, ms, is_of_one=is_of_one)

    # How an attempt ends that did not succeed

    def _failed(
        self, claims: Sequence[Claimed], error: BaseException, started: float
    ) -> list[Result]:
        handler = self._handler or self._runs.handlers.of(claims[0])[0]
        ms = milliseconds_since(started)
        return [self._runs.failed(handler, claimed, error, ms) for claimed in claims]

    def _interrupted(
        self, claims: Sequence[Claimed], error: BaseException, started: float
    ) -> Sequence[Ended] | None:
        """The ends if the node interrupted the handler, which may have raised any error of its own.
        None: the node did not."""
        match self._reason:
            case CutReason.LOST | CutReason.SHUTDOWN:  # of a batch, others are not lost
                return [Released(claimed) for claimed in claims]
            case CutReason.TIMEOUT if isinstance(error, asyncio.CancelledError | CancelledError):
                return [self._timed_out(claimed, started) for claimed in claims]
        return None

    def _timed_out(self, claimed: Claimed, started: float) -> Result:
        assert self._handler is not None
        error = TimeoutError(f"not done after {self._handler.timeout:g} seconds")
        return self._runs.failed(self._handler, claimed, error, milliseconds_since(started))

    async def _unclear(
        self, claims: Sequence[Claimed], error: AttemptLost | ConnectionLost, started: float
    ) -> Sequence[Ended]:
        """Find out what became of a transaction whose COMMIT was refused, or got no reply."""
        if isinstance(error, AttemptLost):
            if news := [one.id for one in claims if one.id in error.ids and self._holds(one)]:
                logger.warning("leases were lost, so nothing was committed: events %s", news)
            return [
                Settled(Completed(claimed), counted=False)
                if claimed.id in error.ids
                else Released(claimed)
                for claimed in claims
            ]
        if error.at_commit and await self._is_committed(claims[0]):
            # Also of one that was snoozed: how it has ended is for the counts of the node only.
            return [Settled(Completed(claimed, milliseconds_since(started))) for claimed in claims]
        return await self._lost_connection(claims, error, started)

    async def _lost_connection(
        self, claims: Sequence[Claimed], lost: ConnectionLost, started: float
    ) -> Sequence[Released | CutOff]:
        """Any of the handlers that ran may have caused the loss, so all of them are suspects,
        unless the server says that none of them did: another session crashed, or the server was
        restarted after an order to stop."""
        if lost.is_innocent or (lost.is_shutdown and await self._is_restarted(started)):
            return [Released(claimed) for claimed in claims]
        handler = self._handler or self._runs.handlers.of(claims[0])[0]
        logger.warning(
            "the connection to PostgreSQL was lost while %s ran, which is now suspected to be "
            "the cause: events %s, %s",
            handler.name,
            [claimed.id for claimed in claims],
            lost,
        )
        ms = milliseconds_since(started)
        return [handler.cut_off(claimed, str(lost), ms) for claimed in claims]

    async def _is_restarted(self, started: float) -> bool:
        started_within = self._runs.engine.started_within
        with suppress(psycopg.Error, HeadraceError):
            return await self._consumer.finisher.insist(
                lambda: started_within(perf_counter() - started)
            )
        return False

    async def _is_committed(self, claimed: Claimed) -> bool:
        """Ask until PostgreSQL knows. If the node stops before that, the answer is no: an event
        that is committed cannot be handed back, so handing it back does no harm."""
        resolve = self._runs.engine.resolve
        with suppress(psycopg.Error, HeadraceError):
            ended = await self._consumer.finisher.insist(lambda: resolve(claimed))
            return ended in ("COMPLETED", "SNOOZED")
        return False

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        """From the thread: have the event loop do something, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._runs.loop).result()


def milliseconds_since(started: float) -> int:
    return int((perf_counter() - started) * 1000)
