"""How long an idle node takes to begin with an event, from the return of `publish`.

Beside it a bare LISTEN in another process, from the return of NOTIFY: what PostgreSQL itself needs. Then the others, each with
a process that publishes and one that works.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

import msgspec
import psycopg

import headrace
from bench import peers
from bench.cases.nodes import Publish, Workers
from bench.measure import Failure
from bench.payloads import TYPE
from bench.peers import OURS, Peer

TIMES = 300, 20  # at most, at least
OTHERS_SHARE = 3  # a third as many for the others
WARM = 3  # that do not count
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
    others: list[Latency] = []
    left_out: list[Failure] = []

    def of(self, name: str) -> Latency | None:
        return next((one for one in (self.node, *self.others) if one.name == name), None)

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
    node_took, notify_took = (_latency(name, times) for name, times in took.items())
    others, left_out = _others(dsn, max(times // OTHERS_SHARE, TIMES[1]), say)
    return Pickup(node_took, notify_took, others, left_out)


def _others(
    dsn: str, times: int, say: Callable[[str], object]
) -> tuple[list[Latency], list[Failure]]:
    """One after the other: an idle worker of one must not be the load of another."""
    found, failed = [], []
    for peer in peers.others(dsn):
        say(f"pick-up: {peer.name}")
        worker, publisher = Workers(dsn, peer, 1, "latency"), Publish(dsn, peer, "single")
        try:
            publisher.setup()
            publisher.prepare(1)
            worker.start()
            took = [_between(worker, publisher) for _ in range(times + WARM)]
            found.append(_latency(peer.name, took[WARM:]))
        except Exception as error:
            failed.append(Failure(peer.name, str(error)))
        finally:
            worker.close()
            publisher.close()
    return found, failed


def _between(worker: Workers, publisher: Publish) -> float:
    _pause()
    _, told = publisher.publish()
    return (float(worker.heard("seen")) - told) * 1000


def _once(workers: Workers, tell: Callable[[], object]) -> float:
    _pause()
    tell()
    told = time.monotonic()
    return (float(workers.heard("seen")) - told) * 1000


def _pause() -> None:
    time.sleep(random.uniform(0.01, 0.03))  # so that it sleeps, and never in step


def _latency(name: str, times: list[float]) -> Latency:
    ordered = sorted(times)
    return Latency(name, *(ordered[int(len(ordered) * part)] for part in (0.5, 0.99)), ordered[-1])
