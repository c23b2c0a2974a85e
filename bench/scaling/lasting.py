"""What lasts: ten minutes of load, half an hour of somebody else's snapshot, and a flow that never swells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

import psycopg

from bench import peers
from bench.cases.nodes import InAndOut
from bench.machine import machine
from bench.measure import Meter
from bench.scaling.figure import Case, Notes, Setting
from bench.scaling.load import AS_IT_RUNS, load
from bench.scaling.trends import growth, is_flat, peaks
from bench.server import Server

SHARE = 0.7  # of the measured maximum
TOGETHER = 1_000
STEADY = 2_000  # events a second, of a flow that is far from the maximum
FLOWS = (1, 10, 100)  # so many of them in a publish
CORES, LATENCY = 0.16, 6  # of PostgreSQL, and p50 in milliseconds, that a flow in tens may take
SETTLED = 1.15  # times what it was before

Points = list[tuple[float, float]]


def cases() -> list[Case]:
    return [
        Case("sustained", "Load that lasts", "seconds", sustained),
        Case("snapshot", "A snapshot that is held", "seconds", snapshot),
        Case("steady", "A steady flow", "events in a publish", steady),
    ]


def sustained(setting: Setting, notes: Notes) -> dict[str, Any]:
    seconds = setting.choose(600, 60)
    with setting.server(AS_IT_RUNS) as server:
        most = _maximum(server, setting.choose(1_000_000, 200_000))
        rate = SHARE * most
        notes.facts |= {"maximum": most, "rate": rate, "seconds": seconds}
        notes.say(
            f"at most {most:,.0f} events a second in and out; now {rate:,.0f} for {seconds} s"
        )
        with server.database() as dsn, load(server, dsn, notes, rate, TOGETHER) as made:
            made.skip(setting.choose(20, 5))
            made.watch("load", seconds, 5)
        judge_load(notes, rate)
        return machine(server)


def _maximum(server: Server, events: int) -> float:
    """Bulk in and one node out at the same time, as in `make bench`."""
    with (
        server.database() as dsn,
        closing(Meter(server.dsn)) as meter,
        closing(InAndOut(dsn, peers.OURS, 1)) as both,
    ):
        return median(meter.take(both, events).rate for _ in range(3))


def judge_load(notes: Notes, rate: float) -> None:
    rates = _points(notes, "load", "rate")
    depth, p99 = _points(notes, "load", "depth"), _points(notes, "load", "p99_ms")
    wal, hot = _points(notes, "load", "wal_bytes"), _points(notes, "load", "hot_mb")
    vacuums = _points(notes, "load", "vacuums")
    notes.find(
        "the rate is kept: at least 98 % of it is handled",
        f"{_middle(rates) / rate:.1%} of {rate:,.0f} a second",
        _middle(rates) >= 0.98 * rate,
    )
    notes.find(
        "depth is bounded: the trend adds less than a second's events",
        f"{growth(depth):+,.0f} from {_middle(depth):,.0f}, at most {max(v for _, v in depth):,.0f}",
        growth(depth) <= rate,
    )
    notes.find(
        "p99 from publish to handler is flat: the trend adds less than a fifth, or 5 ms",
        f"{growth(p99):+.1f} ms from {_middle(p99):.1f} ms",
        is_flat(p99, 0.2, 5),
    )
    notes.find(
        "WAL per event is flat: the trend adds less than a tenth",
        f"{growth(wal):+.1f} B from {_middle(wal):.0f} B",
        is_flat(wal, 0.1),
    )
    early, late = peaks(hot)
    notes.find(
        "autovacuum keeps up: it came, and the hot tables' peak in the second half is less than a fifth, or 8 MB, above the first's",
        f"{vacuums[-1][1] - vacuums[0][1]:.0f} visits, {late:.1f} MB after {early:.1f} MB",
        vacuums[-1][1] > vacuums[0][1] and late <= max(1.2 * early, early + 8),
    )


def snapshot(setting: Setting, notes: Notes) -> dict[str, Any]:
    before, held, after = setting.choose((120, 1800, 300), (20, 120, 40))
    every = setting.choose(10, 4)
    notes.facts |= {"rate": STEADY, "held": held}
    with setting.server(AS_IT_RUNS) as server:
        with server.database() as dsn, load(server, dsn, notes, STEADY, 100) as made:
            made.skip(10)
            made.watch("before", before, every)
            with held(dsn):
                notes.facts["from"] = made.seconds
                made.watch("held", held, every)
            notes.facts["until"] = made.seconds
            made.watch("after", after, every)
        judge_snapshot(notes)
        return machine(server)


@contextmanager
def held(dsn: str) -> Iterator[None]:
    """A report that forgot to end: nothing that is deleted from now on can be removed."""
    with psycopg.connect(dsn) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select count(*) from headrace.queues")
        yield


def judge_snapshot(notes: Notes) -> None:
    for measure, name in (
        ("claim_ms", "a claim"),
        ("server_cpu_us", "PostgreSQL's CPU per event"),
        ("buffers", "buffers per event"),
        ("p99_ms", "p99 from publish to handler"),
        ("hot_mb", "size of the hot tables"),
    ):
        before, held = _points(notes, "before", measure), _points(notes, "held", measure)
        after = _points(notes, "after", measure)
        if not (before and held and after):
            continue
        was, last = _middle(before), _middle(held[-max(len(held) // 10, 1) :])
        then = _middle(after[len(after) // 2 :])
        notes.find(
            f"{name}: before, at the end of the snapshot, after it",
            f"{was:,.2f}, {last:,.2f} ({last / was:.2f} ×), {then:,.2f} ({then / was:.2f} ×)",
        )
    _find_recovery(notes)


def _find_recovery(notes: Notes) -> None:
    usual = SETTLED * _middle(_points(notes, "before", "server_cpu_us") or [(0, 0)])
    after = _points(notes, "after", "server_cpu_us")
    released = notes.facts["until"]
    for (at, one), (_, next) in pairwise(after):
        if max(one, next) <= usual:
            notes.find(
                f"after its release until CPU per event is within {SETTLED} × of what it was",
                f"{at - released:.0f} s",
                True,
            )
            return
    notes.find(f"CPU per event comes back to {SETTLED} × of what it was", "it did not", False)


def steady(setting: Setting, notes: Notes) -> dict[str, Any]:
    seconds = setting.choose(60, 10)
    notes.facts |= {"rate": STEADY}
    with setting.server(AS_IT_RUNS) as server:
        for together in FLOWS:
            series = f"{together} together"
            with (
                server.database() as dsn,
                load(server, dsn, notes, STEADY, together) as made,
            ):
                made.skip(5)
                made.watch(series, seconds, 5)
            _judge_flow(notes, series, together)
        return machine(server)


def _judge_flow(notes: Notes, series: str, together: int) -> None:
    cpu = _points(notes, series, "server_cpu_us")
    if not cpu:
        return
    rate, p50 = _middle(_points(notes, series, "rate")), _middle(_points(notes, series, "p50_ms"))
    cores = _middle(cpu) * rate / 1e6
    notes.find(
        f"{STEADY:,} a second, {series}: PostgreSQL's CPU, and p50 from publish to handler",
        f"{cores:.2f} cores for {rate:,.0f} a second, {p50:.1f} ms",
        cores <= CORES and p50 <= LATENCY if together == 10 else None,
    )


def _points(notes: Notes, series: str, measure: str) -> Points:
    return list(notes.medians(series, measure).items())


def _middle(points: Points) -> float:
    return median(value for _, value in points)
