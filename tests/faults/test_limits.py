"""Limits hold whoever is killed, and whenever they are changed: shown by what the workers have noted, outside the database."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.places import check_places

STALE = 1.0  # seconds: claims that began before a change may still be made by the limits before it
PER = 2.0


class Start(NamedTuple):
    group: str
    event: int
    attempt: int
    at: float
    until: float


class Bounds(NamedTuple):
    since: float
    at_once: int
    whole: int
    rate: int
    burst: int

    def as_setting(self) -> list[dict[str, Any]]:
        return [
            {"scope": "tag", "prefix": "tenant:", "at_once": self.at_once},
            {"scope": "queue", "at_once": self.whole},
            {"scope": "type", "match": "*", "rate": self.rate, "per": PER, "burst": self.burst},
        ]


@pytest.mark.parametrize(
    ("processes", "tenants", "seconds"),
    [
        pytest.param(4, 8, 8, marks=pytest.mark.timeout(180)),
        pytest.param(8, 50, 120, marks=(pytest.mark.long, pytest.mark.timeout(900))),
    ],
)
def test_limits_hold_though_workers_are_killed_and_limits_are_changed(
    db: Database, tmp_path: Path, processes: int, tenants: int, seconds: int
) -> None:
    dice = random.Random(seconds)
    bounds = [change(db, 3, 10, 200, 20)]
    sizes = [200 * seconds, *[dice.choice([1, 5, 40]) for _ in range(tenants - 1)]]
    for tenant, size in enumerate(sizes):
        publish(db, f"tenant:{tenant}", size)
    crew = [start(db, tmp_path, number) for number in range(processes)]
    db.wait_for(lambda: len(list(tmp_path.glob("*.notes"))) == processes)
    stop_at = time.monotonic() + seconds
    while time.monotonic() < stop_at or (len(bounds) < 3 or len(read(tmp_path)[0]) < 200):
        time.sleep(dice.random())
        match dice.choice(["kill", "change", "publish"]):
            case "kill":
                victim = dice.randrange(processes)
                crew[victim].kill()
                crew[victim].wait()
                crew[victim] = start(db, tmp_path, dice.randrange(10**9))
            case "change":
                given = dice.choice([1, 2, 5]), dice.choice([4, 10, 30])
                bounds.append(change(db, *given, dice.choice([100, 400]), dice.choice([0, 20])))
            case _:
                publish(db, f"tenant:{dice.randrange(tenants)}", 5)
    for one in crew:
        one.terminate()
        assert one.wait(30) in (0, -signal.SIGTERM)  # which may come before it has begun
    starts, ended = read(tmp_path)
    check_at_once(starts, ended, bounds)
    check_rates(starts, bounds)
    come_to_rest(db)
    assert db.sql("select * from headrace.limits('default')") == [], "all slots are free"


def change(db: Database, at_once: int, whole: int, rate: int, burst: int) -> Bounds:
    bounds = Bounds(time.time(), at_once, whole, rate, burst)
    db.sql(
        "select headrace.change_queue('default', 'main', %s)",
        [Jsonb({"limits": bounds.as_setting()})],
    )
    return bounds


def publish(db: Database, tenant: str, many: int) -> None:
    for at in range(0, many, 1000):
        events = [{"tags": [tenant]}] * min(1000, many - at)
        db.sql("select headrace.publish('default', %s)", [Jsonb(events)])


def start(db: Database, folder: Path, seed: int) -> subprocess.Popen[bytes]:
    notes = folder / f"{seed}.notes"
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.limited", db.dsn, notes, str(seed)]
    )


def read(folder: Path) -> tuple[list[Start], dict[tuple[int, int], float]]:
    starts, ended = [], {}
    for file in folder.glob("*.notes"):
        *whole, _cut_short = file.read_text().split("\n")
        for kind, *said in map(json.loads, whole):
            if kind == "start":
                starts.append(Start(*said))
            else:
                ended[said[0], said[1]] = said[2]
    return sorted(starts, key=lambda one: one.at), ended


def allowed(bounds: list[Bounds], since: float, until: float) -> list[Bounds]:
    """The bounds that may have counted at some time in between."""
    return [
        one
        for one, after in zip(bounds, [*bounds[1:], None], strict=True)
        if one.since <= until and (after is None or after.since + STALE >= since)
    ]


def check_at_once(
    starts: list[Start], ended: dict[tuple[int, int], float], bounds: list[Bounds]
) -> None:
    """At the moment of each start, what is in progress is not more than the limit: a lower one interrupts nothing."""
    running: list[tuple[str, float]] = []
    by_claim: dict[float, list[Start]] = defaultdict(list)
    for one in starts:
        by_claim[one.at].append(one)
    for at, claim in by_claim.items():
        running = [(group, over) for group, over in running if over > at]
        for one in claim:
            over = min(one.until, ended.get((one.event, one.attempt), one.until))
            running.append((one.group, over))
        may = allowed(bounds, at, at)
        assert len(running) <= max(one.whole for one in may), at
        many = Counter(group for group, _ in running)
        for group in {one.group for one in claim}:
            assert many[group] <= max(one.at_once for one in may), (group, at)


def check_rates(starts: list[Start], bounds: list[Bounds]) -> None:
    times = [one.at for one in starts]
    last = 0
    for first, at in enumerate(times):
        while last < len(times) and times[last] < at + PER - 1e-6:
            last += 1
        may = allowed(bounds, at, at + PER)
        assert last - first <= max(one.rate for one in may) + max(one.burst for one in may), at


def come_to_rest(db: Database) -> None:
    """Without limits all of it ends, each event once; then they are there again."""
    [(limits,)] = db.sql("select limits from headrace.queues")
    db.sql("""select headrace.change_queue('default', 'main', '{"limits": null}')""")
    while db.sql("select true from headrace.deliveries limit 1"):
        db.advance(seconds=5)
        db.sql("select headrace.tick()")
        db.sql("""
            with claimed as materialized (select * from headrace.poll('default', max_events => 1000))
            select headrace.finish('default', 'main', array_agg(id), array_agg(attempt), array_agg(lease))
            from claimed having count(*) > 0""")
    check_places(db.sql)
    twice = db.sql("""
        select m.event from headrace.outcomes o cross join lateral unnest(o.events) as m(event)
        where o.action = 'COMPLETED' group by m.event having count(*) > 1""")
    assert twice == []
    db.sql("select headrace.change_queue('default', 'main', %s)", [Jsonb({"limits": limits})])
