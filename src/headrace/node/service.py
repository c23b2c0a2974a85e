"""A node while it runs: its connections, its loops, and how it stops."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from headrace.async_client import AsyncEventQueue, sessions
from headrace.client import EventQueue
from headrace.errors import HeadraceError, NotRunning
from headrace.memory import TICK_EVERY
from headrace.model import Claimed, Dispatch, Event, NewEvent, Released, Result
from headrace.node.abandonment import Abandonment
from headrace.node.consuming import LARGEST, Consumer
from headrace.node.context import Means, node_name
from headrace.node.engine import Engine
from headrace.node.finishing import Finisher
from headrace.node.handlers import Handlers
from headrace.node.lanes import Lane
from headrace.node.leases import LeaseKeeper
from headrace.node.outage import Outage, Patience
from headrace.node.registry import Registration
from headrace.node.runners import OnError, Runners
from headrace.node.runs import Run
from headrace.node.slots import Slots
from headrace.node.tally import Tally
from headrace.node.threads import Threads
from headrace.node.transactions import Pools
from headrace.node.underway import Reason
from headrace.node.vitals import Vitals
from headrace.opening import open_source_soon
from headrace.pools import AsyncSessions
from headrace.readiness import Readiness
from headrace.wakeup import Wakeups

logger = logging.getLogger("headrace.node")

SAVING = 5.0  # seconds of the grace time
PLAN_EVERY = 30.0  # seconds between two looks at the schedules
NAMED = 10  # handlers in a line of the log
REGISTERING = 5.0  # seconds that a start waits for it, and for what an earlier one left behind
# Seconds after the grace time: for interrupted handlers to end, for their ends to be told, for calls to be broken
# off and connections to be closed. What is left of a second is for the process to end.
LAST_WORDS, TELLING, CLOSING = 0.2, 0.4, 0.2


DEFAULT_LEASE = timedelta(seconds=60)


@dataclass(frozen=True)
class Settings:
    """How a node runs; see Node."""

    node_id: str
    namespace: str
    queue: str
    dsn: str | None
    data: Path | str | None
    migrate: bool | None
    prepare: bool
    concurrency: int
    connections: int
    lease: timedelta | None
    """None: the queue's."""
    idle: float | None
    on_error: OnError | None
    dispatch: Dispatch
    display_name: str | None
    description: str | None
    metadata: dict[str, Any]
    timeout: float


class Service:
    """What `start` has opened and put to work; `open` makes one."""

    queue: AsyncEventQueue
    keeper: LeaseKeeper
    runners: Runners
    finisher: Finisher
    readiness: Readiness

    def __init__(self, settings: Settings, handlers: Handlers, grace: float) -> None:
        self._settings = settings
        self._grace = grace
        self._handlers = handlers
        self._opened = AsyncExitStack()
        self._clients: list[AsyncSessions] = []
        self._consumers: dict[Lane, Consumer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._claiming: set[asyncio.Task[None]] = set()
        """Those of them that claim; also for lanes that are no more, until they know."""
        self._ending = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self.tally = Tally()
        self.slots = Slots(settings.concurrency)
        self._transactional = Slots(settings.connections, within=self.slots)
        self.outage = Outage(settings.node_id)
        self.abandoned: Abandonment[Run] = Abandonment(settings.concurrency, self._abandons)
        self.exhausted = asyncio.Event()
        """Set when so many handlers were abandoned that only another process helps."""
        self.loop = asyncio.get_running_loop()
        self._process = os.getpid()
        self.lease = settings.lease or DEFAULT_LEASE

    @classmethod
    async def open(cls, settings: Settings, handlers: Handlers, grace: float) -> Service:
        service = cls(settings, handlers, grace)
        named = node_name.set(settings.node_id)  # for all that is started from here
        try:
            await service._open()
        except BaseException:
            await service._opened.aclose()
            raise
        finally:
            node_name.reset(named)
        return service

    async def _open(self) -> None:
        s, opened = self._settings, self._opened
        source = await open_source_soon(
            s.dsn, s.data, s.migrate, s.namespace, prepare=s.prepare, bound=s.timeout
        )
        opened.push_async_callback(asyncio.to_thread, source.close)
        s = self._settings = replace(s, prepare=source.prepare)
        # One for each lane and some for what handlers publish; and one for ends, which wait for nobody.
        self.queue = await self._client(source.dsn, len(self._handlers.lanes()) + 4)
        ends = await self._client(source.dsn, 1)
        info = await self.queue.queue()
        self._idle = info.processing_interval.total_seconds() if s.idle is None else s.idle
        self._largest = info.batch_size or LARGEST
        self.lease = s.lease or info.lease or DEFAULT_LEASE

        self._pools = pools = Pools(source.dsn, s.connections, prepare=s.prepare, bound=s.timeout)
        opened.push_async_callback(pools.close)
        threads = Threads(f"headrace {s.node_id}")
        opened.callback(threads.close)
        self.readiness = Readiness(source.dsn)
        opened.push_async_callback(self.readiness.close)
        self._wakeups = Wakeups(source.dsn, prepare=s.prepare)
        await opened.enter_async_context(self._wakeups)
        self.keeper = LeaseKeeper(
            source.dsn,
            s.namespace,
            s.queue,
            self.lease.total_seconds(),
            prepare=s.prepare,
            on_lost=lambda lease: self._call_soon(self._lost, lease),
            overdue=self._overdue,
            told=lambda *ended: self._call_soon(self.finisher.judged, *ended),
        )
        self.engine = Engine(self.queue, ends, self.lease, self.keeper.instance, s.dispatch)
        self.finisher = Finisher(
            self.engine,
            self.outage,
            self.tally,
            self.keeper.drop,
            self._look_again,
            collects=s.dispatch == "collect",
        )
        self.runners = Runners(
            self._handlers,
            self.engine,
            pools,
            threads,
            *self._means(),
            s.on_error,
            s.dispatch,
            self.abandoned,
        )
        self.keeper.start()
        self.keeper.watch_loop(self.loop)
        opened.push_async_callback(asyncio.to_thread, self.keeper.close, 1.0)
        handled = self._handlers.types
        await self._wait(asyncio.wrap_future(self._register()), REGISTERING)
        self._start(self.finisher.run(), "ends")
        self._start(self._upkeep(), "upkeep")
        self.reconcile()
        if handled != self._handlers.types:  # meanwhile
            self._register()

    async def _client(self, dsn: str, size: int) -> AsyncEventQueue:
        s = self._settings
        pool = sessions(dsn, size, prepare=s.prepare, bound=s.timeout)
        await self._opened.enter_async_context(pool)
        self._clients.append(pool)
        return AsyncEventQueue(pool, namespace=s.namespace, queue=s.queue, prepare=s.prepare)

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
                self.queue._calls.worker,
            )
        )

    def _means(self) -> tuple[Means, Means]:
        """What contexts do their work with: those of plain handlers, and those of async ones."""
        queue, loop = self.queue, self.loop
        plain = EventQueue(
            None,
            namespace=self._settings.namespace,
            queue=self._settings.queue,
            prepare=self._settings.prepare,
        )
        length = self.lease.total_seconds()

        # Plain and async handlers of one event may share a transaction; whose connection it is waits meanwhile.
        def publish(event: NewEvent, *, connection: Any, enforce: bool) -> Event:
            self._check_process()
            if connection is None or isinstance(connection, psycopg.AsyncConnection):
                published = publish_async(event, connection=connection, enforce=enforce)
                return asyncio.run_coroutine_threadsafe(published, loop).result()
            return plain._run(plain._calls.publish(event, enforce), connection)

        async def publish_async(event: NewEvent, *, connection: Any, enforce: bool) -> Event:
            if isinstance(connection, psycopg.Connection):
                joining = partial(publish, connection=connection, enforce=enforce)
                return await asyncio.to_thread(joining, event)
            enforced = enforce or connection is None
            return await queue._run(queue._calls.publish(event, enforced), connection)

        def save(claimed: Claimed, progress: Any, connection: Any) -> None:
            self._check_process()
            if connection is None or isinstance(connection, psycopg.AsyncConnection):
                saved = save_async(claimed, progress, connection)
                asyncio.run_coroutine_threadsafe(saved, loop).result()
            else:
                plain.save_progress(claimed, progress, connection=connection)

        async def save_async(claimed: Claimed, progress: Any, connection: Any) -> None:
            if isinstance(connection, psycopg.Connection):
                await asyncio.to_thread(save, claimed, progress, connection)
            else:
                await queue.save_progress(claimed, progress, connection=connection)

        kept = length, self.keeper.renewed_at
        producer = self._settings.node_id
        return (
            Means(*kept, publish, save, producer),
            Means(*kept, publish_async, save_async, producer),
        )

    def _check_process(self) -> None:
        """A process that a handler has forked has no loop of the node's, and would wait for it for ever."""
        if os.getpid() != self._process:
            raise NotRunning(
                "the context of a handler works in the process of its node, and this one was forked from it: use connect() "
                "here"
            )

    def reconcile(self) -> None:
        """Claim for the handlers that there are now."""
        if self._ending.is_set():
            return
        wanted = self._handlers.lanes()
        for lane in self._consumers.keys() - set(wanted):
            self.finisher.end_all(map(Released, self._consumers.pop(lane).stop()))
        for lane in wanted:
            if lane not in self._consumers:
                consumer = self._consumers[lane] = self._consumer(lane)
                claiming = self._start(consumer.run(), "claims")
                self._claiming.add(claiming)
                claiming.add_done_callback(self._claiming.discard)

    def registered(self) -> None:
        """There are other handlers than before."""
        self._register()
        self.runners.replan()
        self.reconcile()

    def _consumer(self, lane: Lane) -> Consumer:
        within = self._transactional if lane.each else self.slots
        return Consumer(
            lane,
            self.engine,
            self.finisher,
            self.keeper,
            self._wakeups.watch(self._settings.namespace, self._settings.queue),
            self.outage,
            Slots(lane.concurrency, within) if lane.concurrency else within,
            self.runners.start,
            idle=self._idle,
            largest=self._largest,
        )

    @property
    def buffered(self) -> int:
        return sum(len(consumer.buffer) for consumer in self._consumers.values())

    def vitals(self) -> Vitals:
        s, tally = self._settings, self.tally
        return Vitals(
            s.node_id,
            s.namespace,
            s.queue,
            self._trouble(),
            ended=dict(tally.ended_by),
            run_times={ms / 1000 or math.inf: count for ms, count in tally.run_times.items()},
            run_time=tally.milliseconds / 1000,
            running=sum(bool(run.claims) for run in self.runners.running),
            buffered=self.buffered,
            leases=self.keeper.holding,
            abandoned=len(self.abandoned),
        )

    def _trouble(self) -> str | None:
        if self._ending.is_set():
            return "The node is stopping."
        if self.abandoned.is_full:
            return f"{len(self.abandoned)} handlers did not end after their timeouts: restart the process."
        return "PostgreSQL does not answer, or not as it should." if self.outage.is_on else None

    def hurry(self) -> None:
        """Stop at once, whatever runs."""
        self._hurry.set()

    async def stop(self, grace: float) -> None:
        """Claim no more, hand back what has not begun, let handlers end for the grace time; then interrupt
        them, and hand their events back. Whoever does not wait for that is in a hurry."""
        if self._stopping is None:
            self._stopping = self.loop.create_task(self._stop(grace))
        try:
            await asyncio.shield(self._stopping)
        except asyncio.CancelledError:
            self.hurry()
            raise

    async def _stop(self, grace: float) -> None:
        self._ending.set()
        for consumer in self._consumers.values():
            self.finisher.end_all(map(Released, consumer.stop()))
        until = time.monotonic() + grace
        await self._wait_for(self._nothing_under_way(), grace)
        await self._interrupt()
        await self._wait_for(self.finisher.flush(), until - time.monotonic())
        await self._wait(self.finisher.flush(), TELLING)
        self.finisher.give_up()
        await self._wait_for(self._save_state(), min(SAVING, until - time.monotonic()))
        await self._close()

    async def _save_state(self) -> None:
        """Of the queue, if something was done here: what is left of the grace time is enough for it, or it is left."""
        if self.tally.ended_by and not self.outage.is_on:
            try:
                await self.queue.save_state()
            except Exception as error:
                logger.info("the state of the queue could not be saved: %s", error)

    async def _close(self) -> None:
        """Everything at the same time: each may have to do with a server that does not answer."""
        await asyncio.gather(
            _end(self._tasks),
            *(pool.close(CLOSING) for pool in self._clients),
            self._pools.close(),
            self._wakeups.close(),
            self._wait(self.readiness.close(), CLOSING),
            asyncio.to_thread(self.keeper.close, CLOSING),
            return_exceptions=True,
        )
        await self._opened.aclose()

    async def _interrupt(self) -> None:
        running = list(self.runners.running)
        if running:
            logger.warning(
                "%d handlers are still running after the grace time; they are interrupted, and their events "
                "handed back: %s",
                len(running),
                _named(running),
            )
        for run in running:
            if not run.interrupt(Reason.SHUTDOWN):
                run.give_back()
        await self._wait(self._nothing_under_way(), LAST_WORDS)
        stubborn = list(self.runners.running)
        if stubborn:
            logger.warning(
                "%d handlers did not end when they were interrupted and are left behind: %s",
                len(stubborn),
                _named(stubborn),
            )
        for run in stubborn:
            run.give_back()

    def _abandons(self) -> None:
        """There is one more handler that was abandoned, or one less."""
        if not self._ending.is_set():
            self._register()
        if self.abandoned.is_full and not self.exhausted.is_set():
            self.exhausted.set()
            logger.critical(
                "%d handlers did not end after their timeouts: the node claims less and less, and its process "
                "should be restarted",
                len(self.abandoned),
            )

    def _overdue(self) -> list[Result]:
        """What is to be told in the place of an event loop that is blocked: the timeouts of handlers that were up a grace
        time ago. Called by the thread that keeps the leases."""
        late = self._late()
        named = _named(late)
        results = [result for run in late for result in run.give_up_late()]
        if results:
            logger.error(
                "the event loop is blocked, and handlers have not ended %.1f s after their timeouts: their events have "
                "failed: %s",
                self._grace,
                named,
            )
        return results

    def _late(self) -> list[Run]:
        since = time.monotonic() - self._grace
        return [run for run in list(self.runners.running) if run.is_overdue(since)]

    # For the overseer, who calls from a thread of its own

    def under_way(self) -> list[str]:
        return [str(run) for run in list(self.runners.running) if run.claims][:NAMED]

    def is_overdue(self) -> bool:
        return bool(self._late())

    def hand_back(self) -> Callable[[float], bool]:
        """Tell what has ended, and hand back all the rest. The process ends right after it."""
        late = [result for run in self._late() for result in run.give_up_late()]
        rest = [claimed for run in list(self.runners.running) for claimed in run.give_up()]
        for consumer in list(self._consumers.values()):
            rest += consumer.take_all()
        return self.keeper.tell([*self.finisher.untold(), *late, *map(Released, rest)])

    async def _nothing_under_way(self) -> None:
        """No handler, and no claim: one must be heard to its end, since what it brings is handed back."""
        while tasks := self._claiming | {run.task for run in self.runners.running if run.task}:
            await asyncio.wait(tasks)

    async def _wait_for(self, what: Any, timeout: float) -> None:  # noqa: ASYNC109
        """Until it is done, the time is up or there is a hurry."""
        waited = asyncio.ensure_future(what)
        hurry = asyncio.ensure_future(self._hurry.wait())
        await asyncio.wait(
            {waited, hurry}, timeout=max(timeout, 0), return_when=asyncio.FIRST_COMPLETED
        )
        await _end({waited, hurry})

    @staticmethod
    async def _wait(what: Any, timeout: float) -> None:  # noqa: ASYNC109
        with suppress(TimeoutError):
            await asyncio.wait_for(what, timeout)

    async def _upkeep(self) -> None:
        """Tick every second, and have the schedules planned ahead."""
        patience = Patience(self.outage)
        plan_at = 0.0
        while not self._ending.is_set():
            try:
                for run in list(self.runners.running):
                    run.tell_ended()
                await self.engine.tick()
                if time.monotonic() >= plan_at:
                    await self._plan()
                    plan_at = time.monotonic() + PLAN_EVERY
            except Exception as error:
                await patience.failed(error, self._ending)
            else:
                patience.worked()
                await asyncio.sleep(TICK_EVERY)

    def schedule_soon(self, schedule: dict[str, Any]) -> None:
        self._start(self._schedule(schedule), "a schedule")

    async def _schedule(self, schedule: dict[str, Any]) -> None:
        patience = Patience(self.outage)
        while not self._ending.is_set():
            try:
                await self.queue.schedule_task(**schedule)
            except psycopg.OperationalError as error:
                await patience.failed(error, self._ending)
            else:
                patience.worked()
                return

    async def _plan(self) -> None:
        with suppress(HeadraceError):  # without the extra `schedules` others do it
            await self.queue.plan_schedules()

    def _look_again(self) -> None:
        for consumer in self._consumers.values():
            consumer.look_again()

    def _lost(self, lease: int) -> None:
        if not self.finisher.lost(lease):
            return
        forgotten = sum(consumer.forget(lease) for consumer in self._consumers.values())
        interrupted = self.runners.lost(lease)
        if forgotten or interrupted:  # else all of it has ended, and we are about to hear how
            logger.warning(
                "a lease was lost: its %d events are, or will be, handled elsewhere",
                forgotten + interrupted,
            )

    def _call_soon(self, what: Any, *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(what, *arguments)

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = self.loop.create_task(work, name=f"headrace {self._settings.node_id}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("%s has ended", task.get_name(), exc_info=task.exception())


def _named(runs: Sequence[Run]) -> str:
    more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
    return ", ".join(map(str, runs[:NAMED])) + more


async def _end(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel them. Who is in the middle of a call first has the server stop what it does; a server that does not
    answer is not waited for."""
    left = set(tasks)
    for _ in range(2):
        for task in left:
            task.cancel()
        if left:
            done, left = await asyncio.wait(left, timeout=CLOSING / 2)
            await asyncio.gather(*done, return_exceptions=True)
