"""What is slow long after its cause, or because there is much of something that it is not about."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import psycopg

import headrace
from bench.machine import machine
from bench.measure import Meter
from bench.payloads import BATCH, TYPE
from bench.scaling.claiming import CLAIM, Claimer
from bench.scaling.costs import costs, metered
from bench.scaling.draining import DrainFrom
from bench.scaling.figure import Case, Notes, Setting
from bench.scaling.filling import fill
from bench.scaling.lasting import held
from bench.scaling.load import AS_IT_RUNS, load

CLAIMS = 40
ROUNDS = 5
RARE = "customer.complained"
LOOK_AT = 200_000  # ids that a search over HTTP looks at, unless it says otherwise
STEADY = 2_000  # events a second
# What 25 minutes of STEADY leave: for a hundred events some three rows of deliveries and two of
# the others.
DEAD = 100_000
DIE = """
do $$
declare q headrace.queues; its bigint;
begin
    select * into q from headrace.queues where name = 'main';
    select route into its from headrace.routes limit 1;
    insert into headrace.ready (event, created_at, route, seq, queue, priority)
    select n, now(), its, n, q.id, 5 from generate_series(-{0}, -1) n;
    delete from headrace.ready where seq < 0;
    insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker)
    select n, now(), now(), q.namespace, q.id, 1, '' from generate_series(-{0} / 2, -1) n;
    delete from headrace.leases where id < 0;
    insert into headrace.counts (at, namespace, queue, published)
    select now() + n * interval '1 ms', q.namespace, q.id, 0 from generate_series(-{0} / 2, -1) n;
    delete from headrace.counts where published = 0;
end $$
"""
DEEP = """
insert into headrace.ready (event, created_at, route, seq, queue, priority)
select nextval('headrace.ids'), now(), 1, currval('headrace.ids'), q.id, 5
from headrace.queues q cross join generate_series(1, 150) where q.name like 'more-%'
"""


def cases() -> list[Case]:
    return [
        Case("suspects", "Events of a killed worker", "events in progress", suspects),
        Case("dead", "Dead rows under a held snapshot", "dead deliveries", dead),
        Case("crowd", "Queues and limits that a claim is not about", "of them", crowd),
        Case("search", "A search for a rare type or key", "events in the log", search),
        Case("sampler", "Deep queues in a tick", "queues", sampler),
    ]


def suspects(setting: Setting, notes: Notes) -> dict[str, Any]:
    """One at a time, or a second crash would blame a neighbour: from the lease's end to the last."""
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        for events in (100, 1_000):
            for _ in range(setting.choose(ROUNDS, 1)):
                with server.database() as dsn, headrace.connect(dsn) as queue:
                    fill(queue, events)
                    claimed = queue.poll(max_events=events, lease=3, worker="killed")
                    over = claimed[0].lease_expires_at.timestamp()
                    with closing(DrainFrom(dsn, over)) as drain:
                        found = costs(meter.take(drain, events))
                notes.note("back from a killed worker", events, **found)
        rate = notes.medians("back from a killed worker", "rate")[1_000]
        notes.find("1,000 have run again within 10 s", f"{1_000 / rate:.1f} s", rate >= 100)
        return machine(server)


def dead(setting: Setting, notes: Notes) -> dict[str, Any]:
    seconds = setting.choose(120, 20)
    rows = setting.choose(DEAD, DEAD // 2)
    with setting.server(AS_IT_RUNS) as server:
        with server.database() as dsn, load(server, dsn, notes, STEADY, 100) as made:
            made.skip(10)
            made.watch("before", seconds, 4)
            with held(dsn), psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(DIE.format(rows))
                made.skip(5)
                made.watch("with dead rows", seconds, 4)
        for measure, most in (("p99_ms", 3.0), ("claim_ms", None), ("server_cpu_us", None)):
            before, now = (
                _typical(notes, series, measure) for series in ("before", "with dead rows")
            )
            ratio = now / before
            notes.find(
                f"{measure} with {rows:,} dead deliveries beside none{f', at most {most}' if most else ''}",
                f"{now:,.2f} against {before:,.2f}, {ratio:.2f} ×",
                None if most is None else ratio <= most,
            )
        return machine(server)


def _typical(notes: Notes, series: str, measure: str) -> float:
    values = sorted(notes.medians(series, measure).values())
    return values[len(values) // 2]


def crowd(setting: Setting, notes: Notes) -> dict[str, Any]:
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        for series, counts, add in (
            ("claims among queues", (10, setting.choose(10_000, 1_000)), _add_queues),
            ("claims under limits", (1, 100), _add_limits),
        ):
            for count in counts:
                with server.database() as dsn, Claimer(dsn, meter) as claimer:
                    add(claimer.queue, dsn, count)
                    fill(claimer.queue, (ROUNDS + 1) * CLAIMS * CLAIM)
                    claimer.vacuum()
                    claimer.warm_up(CLAIMS)
                    for _ in range(ROUNDS):
                        notes.note(series, count, **claimer.cost(CLAIMS))
            _compare(notes, series, "server_cpu_us", 1.2)
            _compare(notes, series, "buffers", 1.2)
        return machine(server)


def _add_queues(queue: headrace.EventQueue, dsn: str, count: int) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        _make_queues(connection, count)


def _make_queues(connection: psycopg.Connection[Any], count: int) -> None:
    connection.execute(
        "insert into headrace.queues (namespace, name, space, types, created_at)"
        " select namespace, 'more-' || n, space, '{none}', now()"
        " from headrace.queues cross join generate_series(1, %s) n where name = 'main'",
        [count],
    )


def _add_limits(queue: headrace.EventQueue, dsn: str, count: int) -> None:
    others = [{"scope": "type", "match": f"other.{n}", "at_once": 5} for n in range(count - 1)]
    queue.change_queue(
        "main", limits=[{"scope": "type", "match": TYPE, "at_once": 1_000_000}, *others]
    )


def search(setting: Setting, notes: Notes) -> dict[str, Any]:
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        for size in setting.choose((300_000, 1_000_000, 3_000_000), (250_000, 500_000)):
            with server.database() as dsn, headrace.connect(dsn) as queue:
                queue.publish(RARE, {}, key="rare")
                fill(queue, size)
                while claimed := queue.poll(max_events=BATCH):
                    queue.complete(claimed)
                searches: dict[str, Callable[[], object]] = {
                    "by a rare type": lambda queue=queue: queue.events(
                        types=[RARE], look_at=LOOK_AT
                    ),
                    "by a rare key": lambda queue=queue: queue.events(key="rare", look_at=LOOK_AT),
                }
                for series, find in searches.items():
                    find()
                    for _ in range(ROUNDS):
                        notes.note(series, size, **metered(meter, 1, find))
        for series in ("by a rare type", "by a rare key"):
            _compare(notes, series, "server_cpu_us", 1.3)
        return machine(server)


def sampler(setting: Setting, notes: Notes) -> dict[str, Any]:
    """The dearest part of a tick: it measures every queue in which something waits."""
    with setting.server() as server:
        for count in (10, 1_000, *setting.choose((10_000,), ())):
            with server.database() as dsn, psycopg.connect(dsn, autocommit=True) as connection:
                _make_queues(connection, count)
                connection.execute(DEEP)
                connection.execute("vacuum (analyze) headrace.ready, headrace.queues")
                with headrace.connect(dsn) as queue:
                    queue.tick()
                    for _ in range(setting.choose(40, 12)):
                        time.sleep(0.5)
                        began = time.perf_counter()
                        queue.tick()
                        notes.note("ticks", count, tick_ms=(time.perf_counter() - began) * 1e3)
            longest = max(
                one.values["tick_ms"]
                for one in notes.samples
                if (one.series, one.x) == ("ticks", count)
            )
            notes.find(f"the longest tick with {count:,} deep queues, at most 200 ms",
                       f"{longest:.0f} ms", longest <= 200)  # fmt: skip
        return machine(server)


def _compare(notes: Notes, series: str, measure: str, most: float) -> None:
    found = notes.medians(series, measure)
    low, high = min(found), max(found)
    ratio = found[high] / found[low]
    notes.find(
        f"{series}, {measure}: {high:,} against {low:,}, at most {most}",
        f"{ratio:.2f} ×",
        ratio <= most,
    )
