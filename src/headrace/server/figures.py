"""Figures for metrics: the timings of requests, and the queues of the whole installation."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

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


def together(found: list[Figures]) -> Figures:
    """Of several shards: numbers are added, of ages the highest counts. A node has registered on
    each."""
    names = {one.namespace for figures in found for one in figures.nodes}
    return Figures(
        _added([one for figures in found for one in figures.totals], 2),
        _added([one for figures in found for one in figures.backlog], 3),
        [
            max(one for figures in found for one in figures.nodes if one.namespace == name)
            for name in sorted(names)
        ],
    )


def _added(rows: list[Any], keys: int) -> list[Any]:
    by: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        by.setdefault(row[:keys], []).append(row)
    return [
        type(same[0])(
            *key,
            *(_one(name, [getattr(row, name) for row in same]) for name in same[0]._fields[keys:]),
        )
        for key, same in by.items()
    ]


def _one(name: str, values: list[Any]) -> Any:
    if isinstance(values[0], bool):
        return all(values)
    if isinstance(values[0], str):
        return values[0]
    known = [value for value in values if value is not None]
    if not known:
        return None
    return max(known) if name.endswith("_seconds") else sum(known)


@dataclass
class Watcher:
    """Reads figures from the database, at most once a second, and sums up those of attempts."""

    directory: Directory
    _figures: Figures | None = None
    _asked_at: float = -inf
    _after: dict[int, int] = field(default_factory=dict)
    """Where the latencies of each database are read on."""
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
        """Of all databases that answer."""
        found: list[Figures] = []
        failed: Exception | None = None
        for part in self.directory.parts:
            try:
                found.append(await self._ask_one(part))
            except (psycopg.Error, PoolTimeout) as error:
                failed = failed or error
        if failed is not None and not found:
            raise failed
        return found[0] if len(found) == 1 else together(found)

    async def _ask_one(self, part: Directory) -> Figures:
        ask = partial(part.ask, lane="look")
        figures = Figures(
            await ask(observe.totals()),
            await ask(observe.backlog()),
            await ask(observe.count_nodes()),
        )
        latencies = await ask(observe.latencies(ATTEMPT_BOUNDS, self._after.get(id(part))))
        self._after[id(part)] = latencies.after
        for latency in latencies.found:
            self._add(latency)
        return figures

    def _add(self, latency: Latency) -> None:
        key = (latency.kind, latency.namespace, latency.queue)
        tally = self.attempts.setdefault(key, Histogram(ATTEMPT_BOUNDS))
        tally.counts[latency.bucket] += latency.attempts
        tally.total += latency.seconds
