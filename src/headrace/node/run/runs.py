"""The runs of a node: starts them, finds those of a lost lease, and logs the failures of their
handlers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextvars import copy_context
from typing import Any, TypeAlias

from headrace.model import Claimed, Dispatch, Result
from headrace.node.claim.consumer import Consumer
from headrace.node.finish.report import report_failure
from headrace.node.handler.context import Means
from headrace.node.handler.handler import Handler
from headrace.node.handler.plan import Plan
from headrace.node.handler.registry import Handlers
from headrace.node.run.abandoned import Abandonment
from headrace.node.run.run import Run
from headrace.node.run.threads import Threads
from headrace.node.run.transaction import Pools
from headrace.node.run.underway import CutReason
from headrace.node.runner import NodeRunner
from headrace.telemetry.current import current

logger = logging.getLogger("headrace.node")

PLANS = 10_000  # pairs of type and tags whose plans are kept

OnError: TypeAlias = Callable[[BaseException, Claimed], object]


class Runs:
    """The runs of a node, and what they have in common."""

    def __init__(
        self,
        handlers: Handlers,
        engine: NodeRunner,
        pools: Pools,
        threads: Threads,
        means: Means,
        async_means: Means,
        on_error: OnError | None,
        dispatch: Dispatch,
        abandoned: Abandonment[Run],
    ) -> None:
        self.handlers = handlers
        self.engine = engine
        self.pools = pools
        self.threads = threads
        self.means = means
        self.async_means = async_means
        self.on_error = on_error
        self.dispatch = dispatch
        self.loop = asyncio.get_running_loop()
        self.running: set[Run] = set()
        self.abandoned = abandoned
        self._variables = copy_context()
        self.plans: dict[tuple[str, tuple[str, ...]], Plan] = {}
        """Another dictionary when there are other handlers."""

    def plan(self, claimed: Claimed) -> Plan:
        plan = self.plans.get((claimed.type, claimed.tags))
        return self._make_plan(claimed) if plan is None else plan

    def _make_plan(self, claimed: Claimed) -> Plan:
        if len(self.plans) >= PLANS:
            self.plans = {}
        # Before the look at the handlers: threads plan too, while handlers are registered.
        plans = self.plans
        plan = Plan.of(self.handlers.of(claimed), self.dispatch)
        plans[claimed.type, claimed.tags] = plan
        return plan

    def replan(self) -> None:
        """There are other handlers than before."""
        self.plans = {}

    def start(
        self,
        consumer: Consumer,
        first: Callable[[Run], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        """Put a run to work, in the slot that was taken for it."""
        run = Run(self, consumer)
        variables = self._variables.copy()
        variables.run(current.set, run)
        run.task = self.loop.create_task(run.work(first), context=variables)
        self.running.add(run)

    def is_handling(self, task: asyncio.Task[Any] | None) -> bool:
        return any(run.task is task for run in self.running)

    def lost(self, lease: int, ids: Collection[int] | None = None) -> int:
        """Interrupt what runs under a lease that is lost, or only these events of it, which were
        taken out; returns how many events that are."""
        lost = 0
        for run in list(self.running):
            claims = run.claims
            its = sum(one.lease == lease and (ids is None or one.id in ids) for one in claims)
            if its:
                run.interrupt(CutReason.LOST, claims)
            lost += its
        return lost

    def failed(self, handler: Handler, claimed: Claimed, error: BaseException, ms: int) -> Result:
        report_failure(handler.name, claimed, error)
        if self.on_error is not None:
            try:
                self.on_error(error, claimed)
            except BaseException:
                logger.exception("on_error itself failed")
        return handler.failed(claimed, error, ms)
