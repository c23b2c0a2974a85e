"""Figures for metrics: the timings of requests, and the queues of the whole installation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf

import psycopg
from psycopg_pool import PoolTimeout

from headrace.engine import observe
from headrace.engine.observe import Backlog, Latency, NodeCounts, QueueTotals
from headrace.server.bulkheads import uncharged
from headrace.server.clients import Directory
from headrace.telemetry.prometheus import Histogram

REQUEST_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
ATTEMPT_BOUNDS = (
    *(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0),
)
YOUNG = 1.0  # seconds for which figures are reused

logger = logging.getLogger("headrace.server")


class Timings:
    """Time from request to answer, by method, path and status."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, int], Histogram] = {}

    def observe(self, method: str, path: str, status: int, seconds: float) -> None:
        key = (method, path, status)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Histogram(REQUEST_BOUNDS)
        tally.add(seconds)

    def __iter__(self) -> Iterator[tuple[tuple[str, str, int], Histogram]]:
        yield from sorted(self._tallies.items())


@dataclass(frozen=True)
class Figures:
    """The queues of the installation at a time."""

    totals: list[QueueTotals]
    backlog: list[Backlog]
    nodes: list[NodeCounts]


@dataclass
class Watcher:
    """Reads figures from the database, at most once a second, and sums up those of attempts."""

    directory: Directory
    _figures: Figures | None = None
    _asked_at: float = -inf
    _after: int | None = None
    attempts: dict[tuple[str, str, str], Histogram] = field(default_factory=dict)
    """By kind, namespace and queue."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def look(self) -> Figures | None:
        """None: the database does not answer."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= YOUNG:
                try:
                    with uncharged():
                        self._figures = await self._ask()
                except (psycopg.Error, PoolTimeout) as error:
                    logger.warning("cannot read figures from the database: %s", error)
                    self._figures = None
                self._asked_at = time.monotonic()
            return self._figures

    async def _ask(self) -> Figures:
        ask = partial(self.directory.ask, lane="look")
        figures = Figures(
            await ask(observe.totals()),
            await ask(observe.backlog()),
            await ask(observe.count_nodes()),
        )
        latencies = await ask(observe.latencies(ATTEMPT_BOUNDS, self._after))
        self._after = latencies.after
        for latency in latencies.found:
            self._add(latency)
        return figures

    def _add(self, latency: Latency) -> None:
        key = (latency.kind, latency.namespace, latency.queue)
        tally = self.attempts.setdefault(key, Histogram(ATTEMPT_BOUNDS))
        tally.counts[latency.bucket] += latency.attempts
        tally.total += latency.seconds
