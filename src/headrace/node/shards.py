"""A node over several shards: a service for each, one set of slots, one client that publishes."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from headrace.async_client import AsyncShardedQueue
from headrace.engine.database import Shard
from headrace.errors import Unavailable
from headrace.node.handler.registry import Handlers
from headrace.node.health.vitals import Vitals, resting
from headrace.node.lifespan import Lifespan
from headrace.node.run.threads import Threads
from headrace.node.service import Service
from headrace.node.settings import DEFAULT_LEASE, Settings
from headrace.node.share import Share
from headrace.node.stop import LEAVING, wait_or_hurry

logger = logging.getLogger("headrace.node")

LOOK_EVERY = 1.0  # seconds between two looks for shards that have no service yet

Starting = Callable[[Settings, Handlers, float, Share, Callable[[Shard], None]], Any]


class Services:
    """The services of a node, one for each shard that answered once. To the node they are one."""

    def __init__(
        self,
        settings: Settings,
        handlers: Handlers,
        lifespan: Lifespan,
        grace: float,
        queue: AsyncShardedQueue,
        start: Starting,
    ) -> None:
        self.queue = queue
        self._settings, self._handlers, self._grace = settings, handlers, grace
        self._start = start
        self._lifespan = lifespan
        self._threads = Threads(f"headrace {settings.node_id}")
        """For the lifespan: those of a service end with it."""
        self._share = Share(settings, queue)
        self.exhausted = self._share.exhausted
        self.by_shard: dict[int, Service] = {}
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._ending = asyncio.Event()
        self._hurry = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Handle events of the shards that answer from now on, and of the others when they do."""
        await self._lifespan.start(self.queue, self._threads)
        handled = self._handlers.types
        failed = await self._start_missing()
        if not self.by_shard:
            raise failed[0]
        if handled != self._handlers.types:  # one was registered while they started
            self.registered()
        self._begin(self._start_on(), "shards")

    async def _start_missing(self) -> list[Exception]:
        failed: list[Exception] = []
        for number, name in self.queue.places.items():
            if number in self.by_shard or self._ending.is_set():
                continue
            settings = replace(self._settings, dsn=self.queue.dsns[name])
            try:
                service = await self._start(
                    settings, self._handlers, self._grace, self._share, self.queue.checking(number)
                )
            except Exception as error:
                failed.append(error)
                logger.warning("the node cannot work for shard %d (%s): %s", number, name, error)
            else:
                self.by_shard[number] = service
                if self._ending.is_set():  # while it was starting
                    await service.stop(0)
        return failed

    async def _start_on(self) -> None:
        while not self._ending.is_set():
            await asyncio.sleep(LOOK_EVERY)
            if len(self.by_shard) < len(self.queue.dsns):
                await self._start_missing()

    def _begin(self, work: Any, name: str) -> None:
        task = self.loop.create_task(work, name=f"headrace {self._settings.node_id}: {name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.critical("%s has ended", task.get_name(), exc_info=task.exception())

    @property
    def lease(self) -> timedelta:
        return min((one.lease for one in self._each()), default=DEFAULT_LEASE)

    def _each(self) -> list[Service]:
        return list(self.by_shard.values())

    def call_soon(self, what: Any, *arguments: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(what, *arguments)

    def registered(self) -> None:
        """There are other handlers than before."""
        for one in self._each():
            one.registered()

    def schedule_soon(self, schedule: dict[str, Any]) -> None:
        self._begin(self._schedule(schedule), "a schedule")

    async def _schedule(self, schedule: dict[str, Any]) -> None:
        """Its home, or a shard that may have it, does not answer: try again."""
        while not self._ending.is_set():
            try:
                await self.queue.schedule_task(**schedule)
                return
            except Unavailable as error:
                logger.warning("the schedule %s has to wait: %s", schedule["name"], error)
                await asyncio.sleep(LOOK_EVERY)

    def is_handling(self, task: asyncio.Task[Any] | None) -> bool:
        return any(one.is_handling(task) for one in self._each())

    def hurry(self) -> None:
        self._hurry.set()
        for one in self._each():
            one.hurry()

    async def stop(self, grace: float) -> None:
        """The one stop of the node: further callers wait for it, too. A caller that is cancelled
        here ends the grace time."""
        if self._stopping is None:
            self._stopping = self.loop.create_task(self._stop(grace))
        try:
            await asyncio.shield(self._stopping)
        except asyncio.CancelledError:
            self.hurry()
            raise

    async def _stop(self, grace: float) -> None:
        self._ending.set()
        until = time.monotonic() + grace
        for task in list(self._tasks):
            task.cancel()
        stops = (one.stop(grace) for one in self._each())
        for error in await asyncio.gather(*stops, return_exceptions=True):
            if error is not None:
                logger.error("a shard's part of the node did not stop well", exc_info=error)
        left = max(until - time.monotonic(), LEAVING)
        await wait_or_hurry(self._lifespan.stop(), left, self._hurry)
        self._threads.close()
        await self.queue.close()

    def vitals(self) -> Vitals:
        """Of all of them together. The node is in trouble if it can work for no shard."""
        each = {number: one.vitals() for number, one in sorted(self.by_shard.items())}
        troubles = {number: its.trouble for number, its in each.items() if its.trouble is not None}
        without = {
            **dict.fromkeys(self._absent(), "it has not answered yet"),
            **{self._name(number): trouble for number, trouble in troubles.items()},
        }
        s = self._settings
        ended: Counter[tuple[str, str]] = Counter()
        run_times: Counter[float] = Counter({math.inf: 0})
        for its in each.values():
            ended.update(its.ended)
            run_times.update(its.run_times)
        found = list(each.values())
        return replace(
            resting(s.node_id, s.namespace, s.queue),
            trouble=_said(without) if len(troubles) == len(each) else None,
            without=without,
            shards={str(number): its.trouble is None for number, its in each.items()},
            ended=dict(ended),
            run_times={bound: n for bound, n in run_times.items() if n},
            run_time=sum(its.run_time for its in found),
            running=sum(its.running for its in found),
            buffered=sum(its.buffered for its in found),
            leases=sum(its.leases for its in found),
            abandoned=len(self._share.abandoned),
        )

    def _absent(self) -> list[str]:
        known = {name for number, name in self.queue.places.items() if number in self.by_shard}
        return [name for name in self.queue.dsns if name not in known]

    def _name(self, number: int) -> str:
        return f"shard {number} ({self.queue.places[number]})"

    async def prove(self) -> tuple[str | None, dict[str, str]]:
        """The problem with all shards, else None; and those with some."""
        numbers = sorted(self.by_shard)
        found = await asyncio.gather(*(self.by_shard[n].readiness.trouble() for n in numbers))
        without = {
            self._name(number): trouble.sentence
            for number, trouble in zip(numbers, found, strict=True)
            if trouble is not None
        }
        return (_said(without) if len(without) == len(numbers) else None), without

    # For the overseer, which calls from a thread of its own

    def under_way(self) -> list[str]:
        return [said for one in self._each() for said in one.under_way()]

    def is_overdue(self) -> bool:
        return any(one.is_overdue() for one in self._each())

    def hand_back(self) -> Callable[[float], bool]:
        told = [one.hand_back() for one in self._each()]

        def wait(seconds: float) -> bool:
            said = [each(seconds / len(told)) for each in told]  # each of them is asked
            return all(said)

        return wait


def _said(troubles: dict[str, str]) -> str:
    return " ".join(f"{name}: {trouble}" for name, trouble in troubles.items())
