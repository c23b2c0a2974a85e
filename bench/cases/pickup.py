"""How long an idle node takes to begin with an event, from the return of `publish`.

Beside it a bare LISTEN in another process, from the return of NOTIFY: what PostgreSQL itself needs.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

import msgspec
import psycopg

import headrace
from bench.cases.nodes import Workers
from bench.payloads import TYPE
from bench.peers import OURS, Peer

TIMES = 300, 20  # at most, at least
GOALS = {"p50": 1.5, "p99": 5.0}  # milliseconds above the bare notification

LISTENER = Peer("notify", (sys.executable, "-m", "bench.workers.listener"), "select false", ())


class Latency(msgspec.Struct, frozen=True):
    """Milliseconds."""

    name: str
    p50: float
    p99: float
    worst: float


class Pickup(msgspec.Struct, frozen=True):
    node: Latency
    notify: Latency

    def above(self, what: str) -> float:
        return float(getattr(self.node, what) - getattr(self.notify, what))

    def met(self, what: str) -> bool:
        return self.above(what) <= GOALS[what]


def measure(dsn: str, events: int, say: Callable[[str], object]) -> Pickup:
    times = max(min(events // 100, TIMES[0]), TIMES[1])
    say("pick-up: preparing")
    with headrace.connect(dsn) as queue, psycopg.connect(dsn, autocommit=True) as connection:
        node = Workers(dsn, OURS, 1, "latency")
        listener = Workers(dsn, LISTENER, 1)
        try:
            ways = [
                (node, lambda: queue.publish(TYPE, {"order": 1})),
                (listener, lambda: connection.execute("select pg_notify('bench', '')")),
            ]
            for workers, _ in ways:
                workers.start()
            took: dict[str, list[float]] = {"headrace": [], "notify": []}
            for number in range(times):
                say(f"pick-up: {number + 1} of {times}")
                for workers, tell in ways:
                    took[workers.name].append(_once(workers, tell))
        finally:
            node.close()
            listener.close()
    return Pickup(*(_latency(name, times) for name, times in took.items()))


def _once(workers: Workers, tell: Callable[[], object]) -> float:
    time.sleep(random.uniform(0.01, 0.03))  # so that it sleeps, and never in step
    tell()
    told = time.monotonic()
    return (float(workers.heard("seen")) - told) * 1000


def _latency(name: str, times: list[float]) -> Latency:
    ordered = sorted(times)
    return Latency(name, *(ordered[int(len(ordered) * part)] for part in (0.5, 0.99)), ordered[-1])
