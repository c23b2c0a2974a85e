"""Regressions of leases, retention and suspects: an experiment showed each of these to go wrong once."""

import psycopg
import pytest

from tests.database import Database
from tests.engine.races_helpers import Background
from tests.requirements import requirement


def held(db: Database, number: int) -> list[tuple[int, int, int]]:
    """So many events, claimed one by one under one lease: (event, attempt, lease)."""
    db.sql(
        "select headrace.publish('default', (select jsonb_agg('{\"type\": \"a\"}'::jsonb)"
        " from generate_series(1, %s)))",
        [number],
    )
    return db.sql(
        "select id, attempt, lease from headrace.poll('default', max_events => %s, each => true)",
        [number],
    )


@requirement("G5", "G6")
def test_a_lease_of_which_a_part_was_taken_away_is_not_brought_back_by_a_heartbeat(
    db: Database,
) -> None:
    (first, attempt, lease), *_ = held(db, 3)
    db.advance(seconds=61)
    worker = db.connect(autocommit=False)
    worker.execute("select headrace.complete('default', %s, %s)", [first, attempt])
    db.sql("select headrace.tick()")  # takes the other two; the first is being finished

    heartbeat = "select state from headrace.extend('default', 'main', %s)"
    assert db.sql(heartbeat, [[lease]]) == [("lost",)]
    worker.commit()
    assert db.sql(heartbeat, [[lease]]) == [("lost",)]
    assert db.sql("select status from headrace.event('default', %s)", [first]) == [("COMPLETED",)]
    db.sql("select headrace.tick()")
    assert db.sql("select count(*) from headrace.leases") == [(0,)]


@requirement("G4", "G10")
@pytest.mark.parametrize("end", ["release", "fail"])
def test_an_event_that_retention_moved_under_an_old_snapshot_is_not_taken_for_deleted(
    db: Database, end: str
) -> None:
    [(event, attempt, _)] = held(db, 1)
    worker = db.connect(autocommit=False)
    worker.execute("set transaction isolation level repeatable read")
    worker.execute("select count(*) from headrace.queues")  # its snapshot is from now
    db.advance(days=240)
    db.sql("select headrace.tick(upkeep => true)")
    assert db.sql("select id from headrace.events_carried") == [(event,)]

    # Its lease has run out, too, and tick has it back: whichever is found first, nothing is buried.
    arguments = "'default', %s, %s, 'no'" if end == "fail" else "'default', %s, %s"
    with pytest.raises(psycopg.Error) as refused:
        worker.execute(f"select headrace.{end}({arguments})", [event, attempt])
    assert refused.value.sqlstate in ("40001", "QU020")
    worker.rollback()

    assert db.sql("select count(*) from headrace.dead_letters") == [(0,)]
    assert db.sql("select id, payload from headrace.poll('default')") == [(event, {})]


@requirement("G4")
def test_an_unfinished_event_that_was_moved_can_be_released_above_read_committed_after_a_retry(
    db: Database,
) -> None:
    [(event, attempt, lease)] = held(db, 1)
    worker = db.connect(autocommit=False)
    worker.execute("set transaction isolation level repeatable read")
    worker.execute("select count(*) from headrace.queues")
    db.advance(days=240)
    db.sql("select headrace.extend('default', 'main', %s)", [[lease]])  # it lives on
    db.sql("select headrace.tick(upkeep => true)")
    with pytest.raises(psycopg.errors.SerializationFailure):
        worker.execute("select headrace.release('default', %s, %s)", [event, attempt])
    worker.rollback()

    worker.execute("set transaction isolation level repeatable read")
    worker.execute("select headrace.release('default', %s, %s)", [event, attempt])
    worker.commit()
    assert db.sql("select id, payload from headrace.poll('default')") == [(event, {})]


@requirement("G9")
def test_neighbours_in_other_leases_of_a_process_that_dies_are_not_charged(db: Database) -> None:
    """Ten threads of one process, each with a claim over one event; one of the events kills it."""
    db.sql(
        "select headrace.publish('default', (select jsonb_agg(jsonb_build_object('type', 'a',"
        " 'payload', n)) from generate_series(1, 10) n))"
    )
    poison = 7
    poll = "select id, attempt, payload from headrace.poll('default', worker => 'host:1')"
    for life in range(30):
        started = [claim for _ in range(10) for claim in db.sql(poll)]
        if life == 0:
            assert len(started) == 10
        else:
            assert len(started) <= 1, "a suspect is claimed by a worker one at a time"
        for event, attempt, number in started:
            if life > 0 and number != poison:
                db.sql("select headrace.complete('default', %s, %s)", [event, attempt])
        db.advance(seconds=61)  # whatever was not finished has killed the process
    assert db.sql("select payload, attempts, crashes from headrace.dead_letters") == [
        (poison, 4, 3)
    ]
    assert db.sql("select count(*) from headrace.deliveries") == [(0,)]


@requirement("G4")
def test_publishers_do_not_wait_while_a_months_living_events_are_carried_over(db: Database) -> None:
    publish = "select headrace.publish('default', '{\"type\": \"a\"}')"
    db.sql(publish)
    [(month,)] = db.sql("select tableoid::regclass::text from headrace.events")
    db.advance(days=240)
    blocker, upkeep = db.connect(autocommit=False), db.connect()
    blocker.execute(
        "lock table headrace.events_carried"
    )  # so that the carrying over takes its time
    retire = "select headrace._retire_partition('events', %s, headrace._now())"
    retiring = Background(upkeep.execute, retire, [month.removeprefix("headrace.")])
    db.wait_until_blocked(upkeep)
    db.sql("set statement_timeout = '30s'")
    db.sql(publish)  # nobody is in its way
    blocker.rollback()
    retiring.result()
    assert db.sql("select count(*) from headrace.events_carried") == [(1,)]
    assert len(db.sql("select id from headrace.poll('default', max_events => 10)")) == 2


@requirement("G4")
def test_two_workers_get_a_suspect_each_at_the_same_time(db: Database) -> None:
    db.sql(
        "select headrace.publish('default', (select jsonb_agg(jsonb_build_object('type',"
        " 'a' || n % 2, 'payload', n)) from generate_series(1, 4) n))"
    )
    db.sql("select from headrace.poll('default', max_events => 4)")
    db.advance(seconds=61)
    db.sql("select headrace.tick()")
    one, other = db.connect(autocommit=False), db.connect()
    poll = "select id from headrace.poll('default', worker => %s)"
    first = one.execute(poll, ["host:1"]).fetchall()
    second = other.execute(poll, ["host:2"]).fetchall()
    third = db.connect().execute(poll, ["host:3"]).fetchall()
    one.commit()
    assert len({*first, *second, *third}) == 3


@pytest.mark.new_database
def test_clearing_ended_leases_away_costs_the_same_after_many_under_a_held_snapshot(
    db: Database,
) -> None:
    """The bound of a tick must be the bound of all that it looks at."""
    snapshot = db.connect(autocommit=False)
    snapshot.execute("set transaction isolation level repeatable read")
    snapshot.execute("select count(*) from headrace.leases")
    db.sql(
        "insert into headrace.leases (id, until, picked_at, namespace, queue, size, worker)"
        " select n, headrace._now() - interval '1 hour', headrace._now(), 1, 1, 1, ''"
        " from generate_series(1, 20000) n"
    )
    db.sql("delete from headrace.leases")

    def blocks() -> int:
        with db.connect(autocommit=False) as session:
            session.execute("select headrace._tick_expired(100, headrace._now() - interval '10 s')")
            row = session.execute(
                "select sum(pg_stat_get_xact_blocks_fetched(c.oid)) from pg_class c"
                " where c.relname like 'leases%'"
            ).fetchone()
            assert row is not None
            return int(row[0])

    assert blocks() < 20
