"""PostgreSQL is killed under load, and what anybody was told stays true."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.database import Database
from tests.faults.crashable import Crashable
from tests.faults.crashable import crashable as crashable  # the fixtures
from tests.faults.crashable import durable as durable
from tests.faults.fleet import PATIENCE, Fleet
from tests.faults.ledger import Ledger, Notes
from tests.requirements import requirement


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.fixture
def fleet(crashable: Crashable, notes: Path) -> Iterator[Fleet]:
    """Workers that end all they claim, under leases that outlast a crash."""
    fleet = Fleet(
        crashable.db,
        notes,
        size=4,
        batches=10_000,
        shortest_lease=60,
        longest_lease=60,
        forgetful=False,
    )
    yield fleet
    fleet.discard()


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{condition} has not come true"
        time.sleep(0.01)


def noted(notes: Path) -> int:
    return sum(file.stat().st_size for file in notes.iterdir())


def work_on(notes: Path) -> None:
    """Wait until the workers have done a good deal more than they have done so far."""
    before = noted(notes)
    eventually(lambda: noted(notes) > before + 20_000)


def unclaimed(db: Database) -> int:
    [(count,)] = db.sql("select count(*) from headrace.deliveries where lease is null")
    return int(count)


def open_claims(db: Database) -> set[tuple[int, int]]:
    return set(db.sql("select event, attempts from headrace.deliveries where lease is not null"))


@requirement("G1", "G4", "G5", "G7", "G8", "G10")
def test_workers_go_on_after_kills_of_the_server_and_nothing_is_lost_or_doubled(
    crashable: Crashable, fleet: Fleet, notes: Path
) -> None:
    for _ in range(2):
        work_on(notes)
        crashable.crash()
        crashable.revive()
    db = fleet.db = crashable.db
    work_on(notes)
    fleet.stop_publishing()
    eventually(lambda: unclaimed(db) == 0)
    fleet.stop()

    # Every lease has outlived the crashes: whoever was handed something could end it.
    told = Notes(notes)
    assert told.lost == set()
    assert open_claims(db).isdisjoint(told.claimed)

    # What was claimed by a call whose answer never came is claimed again.
    db.advance(seconds=61)
    fleet.start()
    # In one statement: in two, what goes from the one to the other is seen in neither.
    eventually(lambda: db.sql("select count(*) from headrace.deliveries") == [(0,)])
    fleet.stop()
    db.advance(seconds=61)
    eventually(lambda: db.sql("select more from headrace.tick()") == [(False,)])
    ledger = Ledger(db, Notes(notes))
    print(ledger)
    ledger.check()


@requirement("G1", "G5", "G6")
def test_what_was_acknowledged_is_there_after_a_kill_of_the_server_and_all_workers(
    crashable: Crashable, fleet: Fleet, notes: Path
) -> None:
    work_on(notes)
    # The workers' claims may all have ended when it comes to the crash; this one has not.
    eventually(lambda: crashable.db.sql("select id from headrace.poll('default')"))
    crashable.crash()
    fleet.discard()
    crashable.revive()
    db, told = crashable.db, Notes(notes)

    placement = db.placement()
    assert set(told.published) <= placement.keys()
    assert {event: place for event, place in placement.items() if len(place) != 1} == {}
    ends = {
        (event, attempt): action
        for event, attempt, action in db.sql(
            "select m.event, m.attempt, o.action from headrace.outcomes o"
            " cross join lateral unnest(o.events, o.attempts) as m(event, attempt)"
            " where o.picked_at is not null"
        )
    }
    for event, attempt, action in told.ended:
        assert ends[event, attempt] == action
    assert set(told.claimed) <= ends.keys() | open_claims(db), "a claim was forgotten"

    # The leases still hold: nobody else gets what they cover, and their workers may go on.
    covered = open_claims(db)
    assert covered
    leases = [lease for (lease,) in db.sql("select id from headrace.leases")]
    states = db.sql("select state from headrace.extend('default', 'main', %s)", [leases])
    assert set(states) == {("held",)}
    others = db.sql("select id from headrace.poll('default', max_events => 1000, sweep => true)")
    assert {event for (event,) in others}.isdisjoint(event for event, _ in covered)
    events, attempts = zip(*covered, strict=True)
    verdicts = db.sql(
        "select verdict from headrace.finish('default', 'main', %s, %s)",
        [list(events), list(attempts)],
    )
    assert verdicts == [], "each of them counted"


def wal_syncs(connection: psycopg.Connection[Any]) -> int:
    connection.execute("select pg_stat_force_next_flush()")
    row = connection.execute(
        "select sum(fsyncs) from pg_stat_io where object = 'wal'"
        if connection.info.server_version >= 180_000
        else "select wal_sync from pg_stat_wal"
    ).fetchone()
    assert row is not None
    return int(row[0])


@requirement("G1")
@pytest.mark.parametrize(
    ("synchronous_commit", "call"),
    [
        ("on", "select headrace.publish('default', '[{}]')"),
        ("on", "select headrace.poll('default')"),
        # Else a crash could hand the same attempt out twice; for publish it is its caller's choice.
        ("off", "select headrace.poll('default')"),
    ],
    ids=["publish", "poll", "poll of a session that would not wait"],
)
def test_a_call_returns_when_its_commit_is_on_the_disk(
    crashable: Crashable, synchronous_commit: str, call: str
) -> None:
    connection = crashable.db.connect()
    connection.execute("select headrace.publish('default', '[{}]') from generate_series(1, 50)")
    connection.execute(f"set synchronous_commit = {synchronous_commit}")
    before = wal_syncs(connection)
    for _ in range(50):
        assert connection.execute(call).rowcount == 1
    assert wal_syncs(connection) >= before + 50
