"""Observe: counts, histories, what needs attention, and numbers of the whole installation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString, NamedTuple

from headrace.engine.arguments import interval
from headrace.engine.caller import Caller
from headrace.engine.statement import Row, Statement, Steps, ask, instant_or_none, timed
from headrace.model import Duration, History, Point, Stats, Worker, told
from headrace.model.attention import Finding


def workers(namespace: str, queue: str, period: Duration) -> Statement[list[Worker]]:
    return Statement(
        "select worker_id, holds, pg_catalog.timestamptz_send(oldest_claim_at), "
        "pg_catalog.timestamptz_send(lease_expires_at), "
        "pg_catalog.timestamptz_send(last_seen_at), completed, failed, released, abandoned, "
        "pg_catalog.timestamptz_send(since) from headrace.workers(%s, %s, %s::interval)",
        (namespace, queue, interval(period, "period")),
        lambda rows: [Worker(*timed(row, 2, 3, 4, 9)) for row in rows],
    )


def stats(namespace: str, queue: str, period: Duration) -> Statement[Stats]:
    return Statement(
        "select ready, delayed, processing, claimed_ahead, dead_letters, "
        "pg_catalog.timestamptz_send(oldest_ready_at), published, completed, failed, abandoned, "
        "dead_lettered, attempts, average_ms, is_exact from headrace.stats(%s, %s, %s::interval)",
        (namespace, queue, interval(period, "period")),
        lambda rows: Stats(*timed(rows[0], 5)),
    )


def history(namespace: str, queue: str, period: Duration) -> Statement[History]:
    def read(rows: list[Row]) -> History:
        return History(rows[0][0], [Point(*timed(row[1:], 0)) for row in rows])

    return Statement(
        "select step, pg_catalog.timestamptz_send(at), seconds, depth, oldest_age, published, completed, failed, "
        "retried, dead, wait_p50, wait_p95, wait_p99, run_p50, run_p95, run_p99 "
        "from headrace.history(%s, %s, %s::interval)",
        (namespace, queue, interval(period, "period")),
        read,
    )


def attention(namespace: str | None) -> Statement[list[Finding]]:
    """None: everywhere."""
    return _attention("headrace.attention(%s)", namespace)


def attention_in(namespaces: list[str]) -> Statement[list[Finding]]:
    return _attention("headrace.attention_in(%s::pg_catalog.text[])", namespaces)


def _attention(source: LiteralString, where: str | list[str] | None) -> Statement[list[Finding]]:
    return Statement(
        "select code, level, namespace, queue, about::pg_catalog.text, pg_catalog.timestamptz_send(since) "
        f"from {source}",
        (where,),
        lambda rows: [
            Finding(code, level, space, queue, told(about), instant_or_none(since))
            for code, level, space, queue, about, since in rows
        ],
    )


class QueueTotals(NamedTuple):
    """The counters of a queue since its beginning, and its claims."""

    namespace: str
    queue: str
    state: str
    published: int
    completed: int
    failed: int
    retried: int
    abandoned: int
    dead_lettered: int
    attempts: int
    timed: int
    ms: int
    recent_attempts: int
    recent_failures: int
    leases: int
    processing: int
    oldest_claim_seconds: float | None


def totals() -> Statement[list[QueueTotals]]:
    return Statement(
        "select namespace, queue, state, published, completed, failed, retried, abandoned, dead_lettered, "
        "attempts, timed, ms, recent_attempts, recent_failures, leases, processing, "
        "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) oldest_claim_at) "
        "from headrace.totals()",
        (),
        lambda rows: [QueueTotals(*row) for row in rows],
    )


class Backlog(NamedTuple):
    """The waiting deliveries of one type in a queue."""

    namespace: str
    queue: str
    type: str | None
    """None: of all the types that are not told one by one."""
    ready: int
    delayed: int
    dead_letters: int
    oldest_ready_seconds: float | None
    is_exact: bool


def backlog() -> Statement[list[Backlog]]:
    return Statement(
        "select namespace, queue, type, ready, delayed, dead_letters, "
        "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp() operator(pg_catalog.-) oldest_ready_at), is_exact "
        "from headrace.backlog()",
        (),
        lambda rows: [Backlog(*row) for row in rows],
    )


class NodeCounts(NamedTuple):
    namespace: str
    alive: int
    lost: int
    stopped: int


def count_nodes() -> Statement[list[NodeCounts]]:
    return Statement(
        "select namespace, alive, lost, stopped from headrace.count_nodes()",
        (),
        lambda rows: [NodeCounts(*row) for row in rows],
    )


class Latency(NamedTuple):
    """How many attempts of a queue fell into a bucket of a histogram, and the sum of their
    times."""

    namespace: str
    queue: str
    kind: str
    bucket: int
    attempts: int
    seconds: float


class Latencies(NamedTuple):
    found: list[Latency]
    after: int
    """The position from which the next call reads on."""


def latencies(bounds: Sequence[float], after: int | None) -> Statement[Latencies]:
    def read(rows: list[Row]) -> Latencies:
        *found, (*_, reached, _) = rows
        return Latencies([Latency(*row) for row in found], reached)

    return Statement(
        "select namespace, queue, kind, bucket, attempts, seconds "
        "from headrace.latencies(%s::pg_catalog.float8[], %s::bigint)",
        (list(bounds), after),
        read,
    )


class ObserveVerbs(Caller):
    """Verbs that observe a queue or a namespace."""

    def workers(self, period: Duration = 300) -> Steps[list[Worker]]:
        """The workers that have claims in this queue or ended attempts in the last `period`, and
        what they did. Workers do not register: this is known from leases and log."""
        return ask(workers(*self.names, period))

    def stats(self, period: Duration = 300) -> Steps[Stats]:
        """How many deliveries of this queue are in which state, and what happened in the last
        `period`."""
        return ask(stats(*self.names, period))

    def history(self, period: Duration = 3600) -> Steps[History]:
        """The numbers of this queue over the last `period`, a week at most, step by step: a chart
        of it."""
        return ask(history(*self.names, period))

    def attention(self, *, everywhere: bool = False) -> Steps[list[Finding]]:
        """What needs attention now in this namespace, or everywhere, the worst first; each finding
        has a `sentence`."""
        return ask(attention(None if everywhere else self.namespace))
