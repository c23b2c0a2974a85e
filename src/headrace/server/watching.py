"""Counting what happens here, and asking how the queues of the whole installation do."""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf

import psycopg
from psycopg_pool import PoolTimeout

from headrace import statements
from headrace.server.bulkheads import uncharged
from headrace.server.directory import Directory
from headrace.statements import Backlog, Latency, NodeCounts, QueueTotals

REQUEST_BOUNDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
ATTEMPT_BOUNDS = (
    *(0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0),
)
YOUNG = 1.0  # seconds within which two who ask are told the same

logger = logging.getLogger("headrace.server")


class Tally:
    """A histogram that grows."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Timings:
    """How long requests took until their answer began, by what was asked and answered."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, int], Tally] = {}

    def observe(self, method: str, path: str, status: int, seconds: float) -> None:
        key = (method, path, status)
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = Tally(REQUEST_BOUNDS)
        tally.add(seconds)

    def __iter__(self) -> Iterator[tuple[tuple[str, str, int], Tally]]:
        yield from sorted(self._tallies.items())


@dataclass(frozen=True)
class Figures:
    """The installation, at a time."""

    totals: list[QueueTotals]
    backlog: list[Backlog]
    nodes: list[NodeCounts]


@dataclass
class Watcher:
    """Asks the database, seldom enough, and remembers what of attempts was told before."""

    directory: Directory
    _figures: Figures | None = None
    _asked_at: float = -inf
    _after: int | None = None
    attempts: dict[tuple[str, str, str], Tally] = field(default_factory=dict)
    """By kind, namespace and queue."""
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def look(self) -> Figures | None:
        """None: the database cannot be asked."""
        async with self._asking:
            if time.monotonic() - self._asked_at >= YOUNG:
                try:
                    with uncharged():
                        self._figures = await self._ask()
                except (psycopg.Error, PoolTimeout) as error:
                    logger.warning("no figures of the database: %s", error)
                    self._figures = None
                self._asked_at = time.monotonic()
            return self._figures

    async def _ask(self) -> Figures:
        ask = partial(self.directory.ask, lane="look")
        figures = Figures(
            await ask(statements.totals()),
            await ask(statements.backlog()),
            await ask(statements.count_nodes()),
        )
        latencies = await ask(statements.latencies(ATTEMPT_BOUNDS, self._after))
        self._after = latencies.after
        for latency in latencies.found:
            self._add(latency)
        return figures

    def _add(self, latency: Latency) -> None:
        key = (latency.kind, latency.namespace, latency.queue)
        tally = self.attempts.setdefault(key, Tally(ATTEMPT_BOUNDS))
        tally.counts[latency.bucket] += latency.attempts
        tally.total += latency.seconds
