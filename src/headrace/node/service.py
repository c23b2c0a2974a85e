"""A node while it runs: its consumers, its runs, its leases, and the upkeep of its queue."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg

from headrace.client import EventQueue
from headrace.driver.patience import Patience, wait_until
from headrace.driver.run import take_turns_async
from headrace.engine.leases import CAUSES
from headrace.engine.statement import Turns
from headrace.engine.time import keep_up
from headrace.errors import HeadraceError
from headrace.model import Released, Result
from headrace.node.claim.consumer import Consumer
from headrace.node.claim.lane import Lane
from headrace.node.claim.slots import Slots
from headrace.node.finish.finisher import Finisher
from headrace.node.handler.clients import HandlerClients
from headrace.node.handler.registry import Handlers
from headrace.node.health.tally import Tally
from headrace.node.health.vitals import Vitals
from headrace.node.lease.keeper import LeaseKeeper
from headrace.node.lease.registration import Registration
from headrace.node.lifespan import Lifespan
from headrace.node.run.run import Run
from headrace.node.run.runs import Runs
from headrace.node.runner import NodeRunner
from headrace.node.share import Share
from headrace.node.stop import NAMED, Stop, named, wait

if TYPE_CHECKING:
    from headrace.node.start import Connections

logger = logging.getLogger("headrace.node")

PLAN_EVERY = 30.0  # seconds between two looks at the schedules
# Seconds that a start waits for its registration, and for taking over what an earlier start held.
REGISTERING = 5.0


class Service:
    """The work of a node on the connections that `start` has opened."""

    def __init__(
        self,
        connections: Connections,
        handlers: Handlers,
        grace: float,
        share: Share,
        lifespan: Lifespan | None = None,
    ) -> None:
        settings = connections.settings
        self.connections = connections
        self.queue = connections.queue
        self.readiness = connections.readiness
        self.lease = connections.lease
        self._settings = settings
        self._grace = grace
        self._handlers = handlers
        self.lifespan = lifespan
        """None: several services share one, which their node opens and closes."""
        self.consumers: dict[Lane, Consumer] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.claiming: set[asyncio.Task[None]] = set()
        """The tasks that claim. The task of a lane that has ended stays until it notices that."""
        self._ending = asyncio.Event()
        self.tally = Tally()
        self._share = share
        self.outage = connections.outage
        self.abandoned, self.exhausted = share.abandoned, share.exhausted
        self.loop = asyncio.get_running_loop()
        self.keeper = self._keeper()
        self.engine = NodeRunner(
            self.queue, connections.ends, self.lease, self.keeper.instance, settings.dispatch
        )
        self.finisher = Finisher(
            self.engine,
            self.outage,
            self.tally,
            self.keeper.drop,
            self._look_again,
            collects=settings.dispatch == "collect",
        )
        self.runs = self._new_runs()
        self._stop = Stop(self)

    def _keeper(self) -> LeaseKeeper:
        s = self._settings
        return LeaseKeeper(
            self.connections.dsn,
            s.namespace,
            s.queue,
            self.lease.total_seconds(),
            self.connections.outage,
            prepare=s.prepare,
            on_lost=lambda lease: self.call_soon(self._lost, lease),
            on_taken=lambda lease, taken: self.call_soon(self._taken, lease, taken),
            overdue=self._overdue,
            told=lambda *ended: self.call_soon(self.finisher.judged, *ended),
        )

    def _new_runs(self) -> Runs:
        s = self._settings
        plain = EventQueue(
            None, namespace=s.namespace, queue=s.queue, prepare=s.prepare, codec=s.codec
        )
        clients = HandlerClients(self.queue, plain, self.loop, self._share.publisher)
        return Runs(
            self._handlers,
            self.engine,
            self.connections.pools,
            self.connections.threads,
            *clients.means(self.lease.total_seconds(), self.keeper.renewed_at, s.node_id),
            s.on_error,
            s.dispatch,
            self.abandoned,
        )

    async def start(self) -> None:
        """Register, and handle events from now on."""
        self.keeper.start()
        self.keeper.watch_loop(self.loop)
        self.connections.wakeups.hear(self.keeper.instance, self.keeper.hint)
        self.connections.opened.push_async_callback(asyncio.to_thread, self.keeper.close, 1.0)
        handled = self._handlers.types
        await wait(asyncio.wrap_future(self._register()), REGISTERING)
        self._start(self.finisher.run(), "ends")
        self._start(self._upkeep(), "upkeep")
        self.reconcile()
        self._share.watchers.append(self._abandons)
        if handled != self._handlers.types:  # handlers were registered meanwhile
            self._register()

    def _register(self) -> Future[str]:
        s = self._settings
        return self.keeper.register(
            Registration(
                s.node_id,
                s.display_name,
                s.description,
                s.metadata
                | ({"abandoned_handlers": count} if (count := len(self.abandoned)) else {}),
                self._handlers.types,
                self.queue.verbs.worker,
                s.concurrency,
            )
        )

    def reconcile(self) -> None:
        """Claim for the handlers that there are now."""
        if self._ending.is_set():
            return
        wanted = self._handlers.lanes()
        for lane in self.consumers.keys() - set(wanted):
            self.finisher.end_all(map(Released, self.consumers.pop(lane).stop()))
        for lane in wanted:
            if lane not in self.consumers:
                consumer = self.consumers[lane] = self._consumer(lane)
                claiming = self._start(consumer.run(), "claims")
                self.claiming.add(claiming)
                claiming.add_done_callback(self.claiming.discard)

    def registered(self) -> None:
        """There are other handlers than before."""
        self._register()
        self.runs.replan()
        self.reconcile()

    def _consumer(self, lane: Lane) -> Consumer:
        return Consumer(
            lane,
            self.engine,
            self.finisher,
            self.keeper,
            self.connections.wakeups.watch(self._settings.namespace, self._settings.queue),
            self.outage,
            self._share.of(lane),
            self.runs.start,
            idle=self.connections.idle,
            largest=self.connections.largest,
        )

    @property
    def slots(self) -> Slots:
        return self._share.slots

    def is_handling(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether it is the task of a handler."""
        return self.runs.is_handling(task)

    async def prove(self) -> tuple[str | None, dict[str, str]]:
        """The problem with PostgreSQL, None: it has just committed; and those of some shards."""
        trouble = await self.readiness.trouble()
        return (None if trouble is None else trouble.sentence), {}

    @property
    def buffered(self) -> int:
        return sum(len(consumer.buffer) for consumer in self.consumers.values())

    def vitals(self) -> Vitals:
        s, tally = self._settings, self.tally
        return Vitals(
            s.node_id,
            s.namespace,
            s.queue,
            self._trouble(),
            ended=dict(tally.ended_by),
            run_times={bound: n for bound, n in tally.run_times.by_bound().items() if n},
            run_time=tally.run_times.total,
            running=sum(bool(run.claims) for run in self.runs.running),
            buffered=self.buffered,
            leases=self.keeper.holding,
            abandoned=len(self.abandoned),
        )

    def _trouble(self) -> str | None:
        if self._ending.is_set():
            return "The node is stopping."
        if self.abandoned.is_full:
            return (
                f"{len(self.abandoned)} handlers did not end after their timeouts: restart "
                "the process."
            )
        if self.outage.is_on:
            return "PostgreSQL does not answer, or refuses the node's calls."
        return None

    def hurry(self) -> None:
        """End the grace time now, even if handlers run."""
        self._stop.hurry()

    async def stop(self, grace: float) -> None:
        """See Stop.wait."""
        await self._stop.wait(grace)

    def stop_claiming(self) -> None:
        """Claim no more, and hand back events that have not begun."""
        self._ending.set()
        for consumer in self.consumers.values():
            self.finisher.end_all(map(Released, consumer.stop()))

    def _abandons(self) -> None:
        """There is one more handler that was abandoned, or one less."""
        if not self._ending.is_set():
            self._register()

    def _overdue(self) -> list[Result]:
        """The results to report while the event loop is blocked: those of handlers whose timeout
        passed a grace time ago. Called by the thread that keeps the leases."""
        late = self._late()
        names = named(late)
        results = [result for run in late for result in run.give_up_late()]
        if results:
            logger.error(
                "the event loop is blocked, and handlers have not ended %.1f s after their "
                "timeouts: their events have failed: %s",
                self._grace,
                names,
            )
        return results

    def _late(self) -> list[Run]:
        since = time.monotonic() - self._grace
        return [run for run in list(self.runs.running) if run.is_overdue(since)]

    # For the overseer, which calls from a thread of its own

    def under_way(self) -> list[str]:
        return [str(run) for run in list(self.runs.running) if run.claims][:NAMED]

    def is_overdue(self) -> bool:
        return bool(self._late())

    def hand_back(self) -> Callable[[float], bool]:
        """Tell what has ended, and hand back all the rest. The process ends right after it."""
        late = [result for run in self._late() for result in run.give_up_late()]
        rest = [claimed for run in list(self.runs.running) for claimed in run.give_up()]
        for consumer in list(self.consumers.values()):
            rest += consumer.take_all()
        return self.keeper.tell([*self.finisher.untold(), *late, *map(Released, rest)])

    async def _upkeep(self) -> None:
        """Tick every second, and have the schedules planned ahead."""
        patience, over = Patience(self.outage), self._ending
        turns = keep_up(self._tick, self._plan, patience, over.is_set, plan_every=PLAN_EVERY)
        await take_turns_async(turns, self.queue.run, partial(wait_until, over))

    def _tick(self) -> Turns[None]:
        """Beside the claims and not before them: a claim that is woken does not wait for a tick."""
        for run in list(self.runs.running):
            run.tell_ended()
        yield self.queue.verbs.catch_up()

    def schedule_soon(self, schedule: dict[str, Any]) -> None:
        self._start(self._schedule(schedule), "a schedule")

    async def _schedule(self, schedule: dict[str, Any]) -> None:
        patience = Patience(self.outage)
        while not self._ending.is_set():
            try:
                await self.queue.schedule_task(**schedule)
            except psycopg.OperationalError as error:
                await patience.wait(error, self._ending)
            else:
                patience.worked()
                return

    def _plan(self) -> Turns[None]:
        with suppress(HeadraceError):  # without the extra `schedules` other nodes plan them
            yield self.queue.verbs.plan_schedules()

    def _look_again(self) -> None:
        for consumer in self.consumers.values():
            consumer.look_again()

    def _lost(self, lease: int) -> None:
        if not self.finisher.lost(lease):
            return
        forgotten = sum(consumer.forget(lease) for consumer in self.consumers.values())
        interrupted = self.runs.lost(lease)
        if forgotten or interrupted:  # else all of it has ended, and we are about to hear how
            logger.warning(
                "a lease was lost: its %d events %s",
                forgotten + interrupted,
                "are gone, because their queue was deleted"
                if self.keeper.queue_is_gone
                else "are, or will be, handled elsewhere",
            )

    def _taken(self, lease: int, taken: Mapping[int, str]) -> None:
        """Events were taken out of a lease; the others of the lease go on."""
        fresh = self.finisher.taken(lease, taken)
        for action in {taken[id] for id in fresh}:
            ids = {id for id in fresh if taken[id] == action}
            for consumer in self.consumers.values():
                consumer.forget(lease, ids)
            logger.info(
                "%d events were %s; handlers of %d of them are interrupted: %s",
                len(ids),
                CAUSES.get(action, "taken away"),
                self.runs.lost(lease, ids),
                sorted(ids)[:NAMED],
            )

    def call_soon(self, what: Any, *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(what, *arguments)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self.loop.create_task(work, name=f"headrace {self._settings.node_id}: {name}")
        self.tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("%s has ended", task.get_name(), exc_info=task.exception())
