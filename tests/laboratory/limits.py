"""Limits, while workers are killed and the limits change: by what the workers have noted, outside the database."""

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from tests.engine.footprint import footprint
from tests.laboratory.accounting import Accounts
from tests.laboratory.house import eventually
from tests.places import check_places

STALE = 1.0  # seconds: claims that began before a change may still be made by the limits before it
PER = 2.0
BIG = "tenant:0"  # has the backlog
POLL = "select id from headrace.poll('default', max_events => 20)"
DRAIN = """
with claimed as materialized (select * from headrace.poll('default', max_events => 1000))
select headrace.finish('default', 'main', array_agg(id), array_agg(attempt), array_agg(lease))
from claimed having count(*) > 0
"""
UNFINISHED = "select true from headrace.deliveries limit 1"
COMPLETED = """
select m.event, count(*) from headrace.outcomes o cross join lateral unnest(o.events) as m(event)
where o.action = 'COMPLETED' group by m.event
"""


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


def measure(
    dsn: str, notes: Path, seed: int, *, processes: int, tenants: int, backlog: int, seconds: float
) -> Accounts:
    """What is not as it is promised, and figures."""
    dice = random.Random(seed)
    accounts = Accounts()
    with psycopg.connect(dsn, autocommit=True) as session:
        work = _Work(session)
        work.change(3, 10, 200, 20)
        for tenant in range(1, tenants):
            work.publish(f"tenant:{tenant}", dice.choice([1, 5, 40]))
        _compare_claims(work, backlog, accounts)
        crew = _Crew(dsn, notes, processes)
        try:
            eventually(lambda: len(list(notes.glob("*.notes"))) == processes)
            until = time.monotonic() + seconds
            while time.monotonic() < until or not _has_met_enough(work, crew, notes):
                time.sleep(dice.random())
                match dice.choice(["kill", "change", "publish"]):
                    case "kill":
                        crew.kill(dice.randrange(processes), dice.randrange(10**9))
                    case "change":
                        given = dice.choice([1, 2, 5]), dice.choice([4, 10, 30])
                        work.change(*given, dice.choice([100, 400]), dice.choice([0, 20]))
                    case _:
                        work.publish(f"tenant:{dice.randrange(tenants)}", 5)
        finally:
            crew.end(accounts)
        starts, ended = read(notes)
        accounts.figures |= {
            "tenants": tenants,
            "processes": processes,
            "processes killed": crew.killed,
            "changes of the limits": len(work.bounds) - 1,
            "starts": len(starts),
        }
        _account_at_once(starts, ended, work.bounds, accounts)
        _account_rates(starts, work.bounds, accounts)
        _come_to_rest(work, accounts)
    return accounts


def _has_met_enough(work: "_Work", crew: "_Crew", notes: Path) -> bool:
    return len(work.bounds) >= 3 and crew.killed > 0 and len(read(notes)[0]) >= 200


class _Work:
    """What there is to do, and within which limits."""

    def __init__(self, session: psycopg.Connection[Any]) -> None:
        self.session = session
        self.bounds: list[Bounds] = []

    def sql(self, statement: str, parameters: Any = None) -> list[Any]:
        cursor = self.session.execute(statement, parameters)
        return cursor.fetchall() if cursor.description else []

    def change(self, at_once: int, whole: int, rate: int, burst: int) -> None:
        self.bounds.append(Bounds(time.time(), at_once, whole, rate, burst))
        self.limit(self.bounds[-1].as_setting())

    def limit(self, limits: list[dict[str, Any]] | None) -> None:
        settings = Jsonb({"limits": limits})
        self.sql("select headrace.change_queue('default', 'main', %s)", [settings])

    def publish(self, tenant: str, many: int) -> None:
        for at in range(0, many, 1000):
            events = [{"tags": [tenant]}] * min(1000, many - at)
            self.sql("select headrace.publish('default', %s)", [Jsonb(events)])


def _compare_claims(work: _Work, backlog: int, accounts: Accounts) -> None:
    """What a claim of small tenants reads while the big one has nothing, and beside its backlog: its group is full."""
    work.publish(BIG, work.bounds[-1].at_once)
    full = "select id, attempt, lease from headrace.poll('default', max_events => 20, tags => %s)"
    claimed = work.sql(full, [[BIG]])
    blocks = [_blocks(work)]
    work.publish(BIG, backlog)
    blocks.append(_blocks(work))
    for event, attempt, lease in claimed:
        work.sql("select headrace.complete('default', %s, %s, 'main', %s)", [event, attempt, lease])
    accounts.figures |= {
        "backlog of the largest": backlog,
        "blocks that a claim of small tenants reads, without the backlog": blocks[0],
        "blocks that a claim of small tenants reads, beside it": blocks[1],
    }
    dearer = 1.25 if work.session.info.server_version < 160000 else 1.2  # see test_limits_at_once
    if blocks[1] > dearer * blocks[0]:
        accounts.wrong["a claim that a backlog makes dearer"] = blocks


def _blocks(work: _Work) -> int:
    """Usually: a claim looks at the groups in a random order, and at no more of them than it needs."""
    seen = []
    for _ in range(10):
        with work.session.transaction(force_rollback=True):
            rows, touched = footprint(work.session, POLL)
        assert rows
        seen.append(touched.total.blocks)
    return int(median(seen[1:]))  # the first reads catalogues, and makes plans


class _Crew:
    def __init__(self, dsn: str, notes: Path, processes: int) -> None:
        self.killed = 0
        self._dsn = dsn
        self._notes = notes
        self._processes = [self._start(number) for number in range(processes)]

    def kill(self, number: int, seed: int) -> None:
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start(seed)
        self.killed += 1

    def end(self, accounts: Accounts) -> None:
        for one in self._processes:
            one.terminate()
        ends = [one.wait(60) for one in self._processes]
        # SIGTERM may come before it has begun
        accounts.must_not_be("processes that died", set(ends) - {0, -signal.SIGTERM})

    def _start(self, seed: int) -> subprocess.Popen[bytes]:
        notes = self._notes / f"{seed}.notes"
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.limited", self._dsn, notes, str(seed)]
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


def _allowed(
    bounds: list[Bounds], which: Callable[[Bounds], int], since: float, until: float
) -> int:
    """The highest of the bounds that may have counted at some time in between."""
    return max(
        which(one)
        for one, after in zip(bounds, [*bounds[1:], None], strict=True)
        if one.since <= until and (after is None or after.since + STALE >= since)
    )


def _account_at_once(
    starts: list[Start],
    ended: dict[tuple[int, int], float],
    bounds: list[Bounds],
    accounts: Accounts,
) -> None:
    """At the moment of each start, what is in progress is not more than the limit: a lower one interrupts nothing."""
    running: list[tuple[str, float]] = []
    by_claim: dict[float, list[Start]] = defaultdict(list)
    for one in starts:
        by_claim[one.at].append(one)
    wrong: list[Any] = []
    most = most_of_one = 0
    for at, claim in by_claim.items():
        running = [(group, over) for group, over in running if over > at]
        for one in claim:
            over = min(one.until, ended.get((one.event, one.attempt), one.until))
            running.append((one.group, over))
        many = Counter(group for group, _ in running)
        most, most_of_one = max(most, len(running)), max(most_of_one, *many.values())
        if len(running) > _allowed(bounds, lambda one: one.whole, at, at):
            wrong.append((len(running), at))
        at_once = _allowed(bounds, lambda one: one.at_once, at, at)
        wrong += [(many[one.group], one.group, at) for one in claim if many[one.group] > at_once]
    accounts.figures |= {
        "most in progress at once": most,
        "most in progress at once, of a tenant": most_of_one,
    }
    accounts.must_not_be("times at which more were in progress than may be", wrong)


def _account_rates(starts: list[Start], bounds: list[Bounds], accounts: Accounts) -> None:
    times = [one.at for one in starts]
    last = most = 0
    wrong: list[Any] = []
    for first, at in enumerate(times):
        while last < len(times) and times[last] < at + PER - 1e-6:
            last += 1
        rate, burst = (
            _allowed(bounds, which, at, at + PER)
            for which in (lambda one: one.rate, lambda one: one.burst)
        )
        most = max(most, last - first)
        if last - first > rate + burst:
            wrong.append((last - first, at))
    accounts.figures["most starts in two seconds"] = most
    accounts.must_not_be("windows in which more started than may", wrong)


def _come_to_rest(work: _Work, accounts: Accounts) -> None:
    """Without limits all of it ends, each event once; then they are there again, and nothing is taken."""
    work.limit(None)

    def rest() -> bool:
        while work.sql(DRAIN):
            pass
        work.sql("select headrace.tick()")
        return not work.sql(UNFINISHED)

    eventually(rest, patience=600)
    check_places(work.sql)
    events = dict(work.sql("select id, 0 from headrace.events"))
    times = dict(work.sql(COMPLETED))
    accounts.figures["published"] = len(events)
    accounts.must_not_be(
        "events that have not ended once", [id for id in events | times if times.get(id) != 1]
    )
    work.limit(work.bounds[-1].as_setting())
    taken = work.sql("select name, in_progress from headrace.limits('default')")
    accounts.must_not_be("slots that are taken by nothing", taken)
