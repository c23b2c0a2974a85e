"""Numbers of the whole installation, for whoever watches it: cheap to ask for, whatever waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headrace.statements.base import (
    Row,
    Statement,
)


class QueueTotals(NamedTuple):
    """What has happened in a queue in all, and who has claims in it."""

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
    """What waits in a queue, of one type."""

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
    """How many attempts of a queue fell into a bucket of a histogram, and what their times add up to."""

    namespace: str
    queue: str
    kind: str
    bucket: int
    attempts: int
    seconds: float


class Latencies(NamedTuple):
    found: list[Latency]
    after: int
    """Where the next call goes on."""


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
