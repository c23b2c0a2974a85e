"""What a watcher is told: how requests fare here, and how the queues of the whole installation do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Literal, TypeVar

from starlette.responses import Response

from headrace.exposition import CONTENT_TYPE, Family, Labels, Sample, histogram, text
from headrace.server.failures import NO_SNIFFING
from headrace.server.operations import Call, Caller, Operation, Query
from headrace.server.watching import Figures, Tally, Timings, Watcher
from headrace.statements import Backlog, QueueTotals

_Row = TypeVar("_Row")


def families(figures: Figures, watcher: Watcher, caller: Caller) -> Iterator[Family]:
    """What a caller may know, of each kind."""
    totals = [one for one in figures.totals if caller.may_see(one.namespace)]
    backlog = [one for one in figures.backlog if caller.may_see(one.namespace)]
    nodes = [one for one in figures.nodes if caller.may_see(one.namespace)]

    def by_type(name: str, said: str, value: Callable[[Backlog], float | None]) -> Family:
        return Family(name, "gauge", said, _samples(backlog, value, _type_labels))

    def by_queue(name: str, said: str, value: Callable[[QueueTotals], float | None]) -> Family:
        kind: Literal["counter", "gauge"] = "counter" if name.endswith("_total") else "gauge"
        return Family(name, kind, said, _samples(totals, value, _queue_labels))

    yield by_type("headrace_depth", "Deliveries that may be claimed now.", lambda b: b.ready)
    yield by_type("headrace_delayed", "Deliveries that wait for their time.", lambda b: b.delayed)
    yield by_type("headrace_dead_letters", "Dead letters.", lambda b: b.dead_letters)
    yield by_type(
        "headrace_oldest_seconds",
        "Since when the oldest delivery waits that may be claimed now.",
        lambda b: b.oldest_ready_seconds,
    )
    yield by_type(
        "headrace_depth_is_exact",
        "1: the numbers of this type were counted; 0: estimated from a sample.",
        lambda b: b.is_exact,
    )
    yield by_queue("headrace_leases", "Claims that hold something.", lambda q: q.leases)
    yield by_queue("headrace_processing", "Deliveries in work.", lambda q: q.processing)
    yield by_queue(
        "headrace_oldest_claim_seconds",
        "Since when the oldest claim is held.",
        lambda q: q.oldest_claim_seconds,
    )
    yield by_queue(
        "headrace_failure_ratio",
        "Of the attempts that ended in the last five minutes, how many failed or were abandoned.",
        lambda q: q.recent_failures / q.recent_attempts if q.recent_attempts else None,
    )
    yield by_queue("headrace_paused", "1: the queue is paused.", lambda q: q.state == "paused")
    yield by_queue("headrace_published_total", "Deliveries published.", lambda q: q.published)
    yield by_queue("headrace_attempts_total", "Attempts that ended.", lambda q: q.attempts)
    yield by_queue("headrace_completed_total", "Attempts that ended well.", lambda q: q.completed)
    yield by_queue(
        "headrace_failed_total", "Attempts that were reported to fail.", lambda q: q.failed
    )
    yield by_queue(
        "headrace_abandoned_total", "Attempts whose lease ran out.", lambda q: q.abandoned
    )
    yield by_queue(
        "headrace_retried_total",
        "Attempts that failed or were abandoned and are followed by another.",
        lambda q: q.retried,
    )
    yield by_queue(
        "headrace_dead_lettered_total", "Deliveries given up.", lambda q: q.dead_lettered
    )
    yield by_queue(
        "headrace_execution_seconds_total", "What attempts said they took.", lambda q: q.ms / 1000
    )
    yield Family(
        "headrace_nodes",
        "gauge",
        "Nodes that have registered: alive, lost (seen to be gone, or not heard of for 90 seconds) or stopped.",
        (
            Sample(getattr(one, state), {"namespace": one.namespace, "state": state})
            for one in nodes
            for state in ("alive", "lost", "stopped")
        ),
    )
    yield Family(
        "headrace_wait_seconds",
        "histogram",
        "From publishing to the first claim, of a sample of the attempts that ended.",
        _attempts(watcher, "wait", caller),
    )
    yield Family(
        "headrace_run_seconds",
        "histogram",
        "From a claim to its end, or what the worker said, of a sample of the attempts that ended.",
        _attempts(watcher, "run", caller),
    )


def _samples(
    rows: Iterable[_Row], value: Callable[[_Row], float | None], labels: Callable[[_Row], Labels]
) -> list[Sample]:
    told = ((value(row), labels(row)) for row in rows)
    return [Sample(float(figure), its) for figure, its in told if figure is not None]


def _histogram(tally: Tally, labels: Labels) -> list[Sample]:
    counts = dict(zip((*tally.bounds, inf), tally.counts, strict=True))
    return histogram(counts, tally.total, labels)


def _attempts(watcher: Watcher, kind: str, caller: Caller) -> Iterator[Sample]:
    for (its, namespace, queue), tally in sorted(watcher.attempts.items()):
        if its == kind and caller.may_see(namespace):
            yield from _histogram(tally, {"namespace": namespace, "queue": queue})


def _requests(timings: Timings) -> Family:
    samples = (
        sample
        for (method, path, status), tally in timings
        for sample in _histogram(tally, {"method": method, "path": path, "status": str(status)})
    )
    said = "How long requests took until their answer began."
    return Family("headrace_http_request_seconds", "histogram", said, samples)


def _queue_labels(row: QueueTotals) -> Labels:
    return {"namespace": row.namespace, "queue": row.queue}


def _type_labels(row: Backlog) -> Labels:
    return {"namespace": row.namespace, "queue": row.queue, "type": row.type or ""}


async def metrics(call: Call) -> Response:
    """Figures for Prometheus: queues, attempts, nodes, and the requests of this server."""
    services = call.services
    figures = await services.watcher.look()
    up = Family("headrace_database_up", "gauge", "1: the database answers.", [_up(figures)])
    told = [up, *(families(figures, services.watcher, call.caller) if figures else ())]
    if call.caller.namespaces is None:
        told.append(_requests(services.timings))
    return Response(
        text(told), media_type=CONTENT_TYPE, headers={"Cache-Control": "no-store", **NO_SNIFFING}
    )


def _up(figures: Figures | None) -> Sample:
    return Sample(figures is not None, {})


OPERATIONS = (
    Operation("GET", "/metrics", metrics, "read", Query, answers={200: str}, produces="text/plain"),
)
