"""What waits: events by the million, of many types, and for their time."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import headrace
from bench.machine import machine
from bench.measure import Meter
from bench.scaling.claiming import CLAIM, Claimer
from bench.scaling.costs import Costs, costs, metered
from bench.scaling.draining import Drain, DrainFrom
from bench.scaling.figure import Case, Notes, Setting
from bench.scaling.filling import fill
from bench.server import Server

ROUNDS = 5
CLAIMS = 40
RARE = "customer.complained"
AHEAD = 8_000  # events a second that are surely published before their time has come


def cases() -> list[Case]:
    return [
        Case("backlog", "Events that wait", "events waiting", backlog),
        Case("routes", "Types in one queue", "routes", routes),
        Case("delayed", "Events that wait for their time", "delayed events", delayed),
    ]


def backlog(setting: Setting, notes: Notes) -> dict[str, Any]:
    with setting.server() as server:
        sizes = (10_000, 100_000, 1_000_000, *setting.choose((10_000_000,), ()))
        for waiting in sizes:
            for number in range(_rounds(waiting)):
                _waits(server, notes, waiting, is_claimed=number == 0)
        _compare(notes, "claims of 50", "buffers", sizes[0], sizes[-1])
        _compare(notes, "claims of 50", "server_cpu_us", sizes[0], sizes[-1])
        _compare(notes, "drain by one node", "server_cpu_us", sizes[1], sizes[-1])
        return machine(server)


def _waits(server: Server, notes: Notes, waiting: int, *, is_claimed: bool) -> None:
    with server.database() as dsn, closing(Meter(server.dsn)) as meter:
        with Claimer(dsn, meter) as claimer:
            notes.say(f"{waiting:,} waiting: publishing")
            more = (ROUNDS + 1) * CLAIMS * CLAIM if is_claimed else 0
            fill(claimer.queue, waiting + more)
            claimer.vacuum()
            if is_claimed:
                claimer.warm_up(CLAIMS)
                for _ in range(ROUNDS):
                    notes.note("claims of 50", waiting, **claimer.cost(CLAIMS))
        notes.note("drain by one node", waiting, **_drained(dsn, meter, waiting))


def _rounds(waiting: int) -> int:
    return {10_000: 7, 100_000: 5, 1_000_000: 2}.get(waiting, 1)


def routes(setting: Setting, notes: Notes) -> dict[str, Any]:
    """The same number of events, of ever more types, each batch of a thousand as mixed as can be."""
    events = setting.choose(200_000, 100_000)
    with setting.server() as server:
        for count in (1, 10, 100, 1_000, 100_000):
            with server.database() as dsn, closing(Meter(server.dsn)) as meter:
                notes.say(f"{count:,} routes: publishing")
                _mixed(dsn, meter, notes, count, events)
        spent = {
            count: sum(
                notes.medians("drain by one node", measure).get(count, 0.0)
                for measure in ("server_cpu_us", "client_cpu_us")
            )
            for count in (1, 1_000)
        }
        ratio = spent[1_000] / spent[1]
        notes.find(
            "a drain of 1,000 types beside one, all CPU per event, at most 2",
            f"{ratio:.2f} ×",
            ratio <= 2,
        )
        return machine(server)


def _mixed(dsn: str, meter: Meter, notes: Notes, count: int, events: int) -> None:
    with Claimer(dsn, meter) as claimer:
        published = metered(
            meter,
            events,
            lambda: fill(claimer.queue, events, lambda number: f"type.{number % count}"),
        )
        notes.note("bulk publish", count, **published)
        rare = (ROUNDS + 1) * CLAIMS * CLAIM
        fill(claimer.queue, rare, lambda number: RARE)
        claimer.vacuum()
        claimer.warm_up(CLAIMS, [RARE])
        for _ in range(ROUNDS):
            notes.note("claims of 50, one type", count, **claimer.cost(CLAIMS, [RARE]))
        claimer.warm_up(CLAIMS)
        for _ in range(ROUNDS):
            notes.note("claims of 50, any type", count, **claimer.cost(CLAIMS))
    left = events - (ROUNDS + 1) * CLAIMS * CLAIM
    notes.note("drain by one node", count, **_drained(dsn, meter, left))


def delayed(setting: Setting, notes: Notes) -> dict[str, Any]:
    with setting.server() as server:
        for waiting in (0, 10_000, 100_000, *setting.choose((1_000_000,), ())):
            with server.database() as dsn, closing(Meter(server.dsn)) as meter:
                _put_off(dsn, meter, notes, waiting)
        return machine(server)


def _put_off(dsn: str, meter: Meter, notes: Notes, waiting: int) -> None:
    moment = time.time() + 10 + waiting / AHEAD
    with Claimer(dsn, meter) as claimer:
        if waiting:
            notes.say(f"{waiting:,} delayed: publishing")
            due = datetime.fromtimestamp(moment, UTC)
            published = metered(meter, waiting, lambda: fill(claimer.queue, waiting, at=due))
            notes.note("bulk publish", waiting, **published)
        fill(claimer.queue, (ROUNDS + 1) * CLAIMS * CLAIM)
        claimer.vacuum()
        claimer.warm_up(CLAIMS)
        for _ in range(ROUNDS):
            notes.note("claims of 50 of others", waiting, **claimer.cost(CLAIMS))
            notes.note("with nothing due", waiting, tick_ms=_tick_ms(claimer.queue))
    if not waiting:
        return
    if time.time() > moment:
        raise RuntimeError("the delayed events were due before all was measured")
    notes.say(f"{waiting:,} delayed: due in {moment - time.time():.0f} s")
    with closing(DrainFrom(dsn, moment)) as drain:
        notes.note(
            "due at once, by one node",
            waiting,
            **costs(meter.take(drain, waiting)),
        )


def _tick_ms(queue: headrace.EventQueue) -> float:
    started = time.perf_counter()
    for _ in range(10):
        queue.tick()
    return (time.perf_counter() - started) / 10 * 1e3


def _drained(dsn: str, meter: Meter, events: int) -> Costs:
    with closing(Drain(dsn)) as drain:
        return costs(meter.take(drain, events))


def _compare(notes: Notes, series: str, measure: str, low: int, high: int) -> None:
    found = notes.medians(series, measure)
    if low in found and high in found and found[low]:
        ratio = found[high] / found[low]
        notes.find(f"{series}, {measure}: {high:,} against {low:,}", f"{ratio:.2f} ×")
