"""Metrics for Prometheus: the requests of this server, and all queues of the installation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, TypeVar

from starlette.responses import Response

from headrace.engine.observe import Backlog, QueueTotals
from headrace.server.figures import (
    Figures,
    Timings,
    Watcher,
)
from headrace.server.http.operation import (
    AdmittedClient,
    Call,
    Operation,
    Query,
)
from headrace.server.http.refusal import NO_SNIFFING
from headrace.telemetry.prometheus import (
    CONTENT_TYPE,
    Family,
    Labels,
    Sample,
    text,
)

_Row = TypeVar("_Row")


def families(figures: Figures, watcher: Watcher, caller: AdmittedClient) -> Iterator[Family]:
    """The metrics that a caller may see."""
    totals = [one for one in figures.totals if caller.may_see(one.namespace)]
    backlog = [one for one in figures.backlog if caller.may_see(one.namespace)]
    nodes = [one for one in figures.nodes if caller.may_see(one.namespace)]

    def by_type(name: str, said: str, value: Callable[[Backlog], float | None]) -> Family:
        return Family(name, "gauge", said, _samples(backlog, value, _type_labels))

    def by_queue(name: str, said: str, value: Callable[[QueueTotals], float | None]) -> Family:
        kind: Literal["counter", "gauge"] = "counter" if name.endswith("_total") else "gauge"
        return Family(name, kind, said, _samples(totals, value, _queue_labels))

    yield by_type("headrace_depth", "Deliveries that are ready.", lambda b: b.ready)
    yield by_type(
        "headrace_delayed", "Deliveries that wait for a delay or a retry.", lambda b: b.delayed
    )
    yield by_type("headrace_dead_letters", "Dead letters.", lambda b: b.dead_letters)
    yield by_type(
        "headrace_oldest_seconds",
        "Age of the oldest ready delivery, in seconds.",
        lambda b: b.oldest_ready_seconds,
    )
    yield by_type(
        "headrace_depth_is_exact",
        "1 if the numbers of this type were counted, 0 if they were estimated from a sample.",
        lambda b: b.is_exact,
    )
    yield by_queue("headrace_leases", "Leases that hold deliveries.", lambda q: q.leases)
    yield by_queue("headrace_processing", "Deliveries in progress.", lambda q: q.processing)
    yield by_queue(
        "headrace_oldest_claim_seconds",
        "Age of the oldest claim, in seconds.",
        lambda q: q.oldest_claim_seconds,
    )
    yield by_queue(
        "headrace_failure_ratio",
        "Share of the attempts ended in the last five minutes that failed or were abandoned.",
        lambda q: q.recent_failures / q.recent_attempts if q.recent_attempts else None,
    )
    yield by_queue("headrace_paused", "1 if the queue is paused.", lambda q: q.state == "paused")
    yield by_queue("headrace_published_total", "Deliveries published.", lambda q: q.published)
    yield by_queue("headrace_attempts_total", "Attempts that ended.", lambda q: q.attempts)
    yield by_queue("headrace_completed_total", "Attempts that completed.", lambda q: q.completed)
    yield by_queue("headrace_failed_total", "Attempts that failed.", lambda q: q.failed)
    yield by_queue(
        "headrace_abandoned_total", "Attempts whose lease expired.", lambda q: q.abandoned
    )
    yield by_queue(
        "headrace_retried_total",
        "Attempts that failed or were abandoned, and were retried.",
        lambda q: q.retried,
    )
    yield by_queue(
        "headrace_dead_lettered_total",
        "Deliveries that became dead letters.",
        lambda q: q.dead_lettered,
    )
    yield by_queue(
        "headrace_execution_seconds_total",
        "Execution time of attempts, as workers reported it.",
        lambda q: q.ms / 1000,
    )
    yield Family(
        "headrace_nodes",
        "gauge",
        "Registered nodes: alive, lost (disconnected, or no heartbeat for 90 seconds) or stopped.",
        (
            Sample(getattr(one, state), {"namespace": one.namespace, "state": state})
            for one in nodes
            for state in ("alive", "lost", "stopped")
        ),
    )
    yield Family(
        "headrace_wait_seconds",
        "histogram",
        "Queue latency, from publishing to the first claim, of a sample of the ended attempts.",
        _attempts(watcher, "wait", caller),
    )
    yield Family(
        "headrace_run_seconds",
        "histogram",
        "Run time, from a claim to its end or as the worker reported it, of a sample of the ended "
        "attempts.",
        _attempts(watcher, "run", caller),
    )


def _samples(
    rows: Iterable[_Row], value: Callable[[_Row], float | None], labels: Callable[[_Row], Labels]
) -> list[Sample]:
    told = ((value(row), labels(row)) for row in rows)
    return [Sample(float(figure), its) for figure, its in told if figure is not None]


def _attempts(watcher: Watcher, kind: str, caller: AdmittedClient) -> Iterator[Sample]:
    for (its, namespace, queue), tally in sorted(watcher.attempts.items()):
        if its == kind and caller.may_see(namespace):
            yield from tally.samples({"namespace": namespace, "queue": queue})


def _requests(timings: Timings) -> Family:
    samples = (
        sample
        for (method, path, status), tally in timings
        for sample in tally.samples({"method": method, "path": path, "status": str(status)})
    )
    said = "Time from a request to the start of its answer."
    return Family("headrace_http_request_seconds", "histogram", said, samples)


def _queue_labels(row: QueueTotals) -> Labels:
    return {"namespace": row.namespace, "queue": row.queue}


def _type_labels(row: Backlog) -> Labels:
    return {"namespace": row.namespace, "queue": row.queue, "type": row.type or ""}


async def metrics(call: Call) -> Response:
    """Metrics for Prometheus: queues, attempts, nodes, and the requests of this server."""
    services = call.services
    figures = await services.watcher.look()
    up = Family("headrace_database_up", "gauge", "1 if the database answers.", [_up(figures)])
    told = [
        up,
        *_shards_up(services.directory),
        *(families(figures, services.watcher, call.caller) if figures else ()),
    ]
    if call.caller.namespaces is None:
        told.append(_requests(services.timings))
    return Response(
        text(told), media_type=CONTENT_TYPE, headers={"Cache-Control": "no-store", **NO_SNIFFING}
    )


def _shards_up(directory: Any) -> list[Family]:
    if not directory.over_shards:
        return []
    fleet = directory.whole.fleet
    told = [Sample(n not in fleet.down, {"shard": str(n)}) for n in fleet.numbers]
    return [Family("headrace_shard_up", "gauge", "1 if the shard answers.", told)]


def _up(figures: Figures | None) -> Sample:
    return Sample(figures is not None, {})


OPERATIONS = (
    Operation("GET", "/metrics", metrics, "read", Query, answers={200: str}, produces="text/plain"),
)
