"""extend: the heartbeat that makes leases last."""

from datetime import timedelta
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused, stop_the_clock
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def extend(engine: Engine, leases: list[Any], **arguments: Any) -> dict[Any, tuple[str, Any]]:
    rows = engine.call(
        "extend", namespace=engine.namespace, queue="main", leases=leases, **arguments
    )
    answers = {row.lease: (row.state, row.lease_expires_at) for row in rows}
    assert len(answers) == len(rows), "one answer for each lease"
    return answers


def lease_of(engine: Engine, size: int = 1, **arguments: Any) -> int:
    engine.publish(*({"payload": n} for n in range(size)))
    return engine.poll(max_events=size, **arguments)[0].lease


@requirement("G4")
@pytest.mark.parametrize("each", [False, True])
def test_an_extended_lease_outlives_its_first_end(engine: Engine, db: Database, each: bool) -> None:
    lease = lease_of(engine, 3, each=each)
    for _ in range(10):
        db.advance(seconds=40)
        assert extend(engine, [lease]) == {lease: ("held", engine.now() + timedelta(minutes=1))}
        assert engine.tick().expired == 0
        assert engine.poll() == []
    db.advance(seconds=61)
    assert engine.tick().expired == 1
    assert extend(engine, [lease]) == {lease: ("lost", None)}


def test_a_lease_lasts_from_now_for_as_long_as_was_asked(engine: Engine, db: Database) -> None:
    lease = lease_of(engine, lease="1 hour")
    [(id,)] = db.sql("select id from headrace.event_queue")
    for by in (timedelta(days=7), timedelta(seconds=5), timedelta(seconds=0.1)):
        expected = engine.now() + by
        assert extend(engine, [lease], by=by) == {lease: ("held", expected)}
        assert engine.event(id).lease_expires_at == expected


@pytest.mark.parametrize("each", [False, True])
def test_without_a_length_it_lasts_for_as_long_as_it_was_claimed_for(
    engine: Engine, db: Database, each: bool
) -> None:
    long, short = lease_of(engine, lease="1 hour", each=each), lease_of(engine, lease="5 seconds")
    for _ in range(2):
        db.advance(seconds=3)
        now = engine.now()
        assert extend(engine, [long, short]) == {
            long: ("held", now + timedelta(hours=1)),
            short: ("held", now + timedelta(seconds=5)),
        }
        extend(engine, [long], by=timedelta(seconds=30))  # once, and no more


def test_many_leases_are_extended_at_once_and_answered_for_each(engine: Engine) -> None:
    batch, held, alone = lease_of(engine, 2), lease_of(engine, 2, each=True), lease_of(engine)
    until = engine.now() + timedelta(seconds=90)
    answers = extend(
        engine, [alone, batch, 0, held, alone, -1, 2**63 - 1], by=timedelta(seconds=90)
    )
    assert answers == {
        alone: ("held", until),
        batch: ("held", until),
        held: ("held", until),
        0: ("lost", None),
        -1: ("lost", None),
        2**63 - 1: ("lost", None),
    }
    assert extend(engine, []) == {}


def test_only_the_end_of_a_lease_changes(engine: Engine, db: Database) -> None:
    lease = lease_of(engine, 3)
    lease_of(engine, 3, each=True)
    before = contents(db)
    rest = db.sql(
        "select to_jsonb(l) - '{until,lasts,extended_at}'::text[] from headrace.leases l order by id"
    )
    extend(engine, [lease], by=timedelta(minutes=9))
    assert differences(before, contents(db)) == {"leases"}
    assert (
        db.sql(
            "select to_jsonb(l) - '{until,lasts,extended_at}'::text[] from headrace.leases l order by id"
        )
        == rest
    )


@requirement("G6")
def test_a_lease_that_ran_out_is_held_on_to_until_it_is_taken_away(
    engine: Engine, db: Database
) -> None:
    lease = lease_of(engine)
    db.advance(hours=1)
    assert extend(engine, [lease]) == {lease: ("held", engine.now() + timedelta(minutes=1))}
    assert engine.tick().expired == 0
    db.advance(minutes=2)
    engine.tick()
    before = contents(db)
    assert extend(engine, [lease]) == {lease: ("lost", None)}
    assert differences(before, contents(db)) == set()


@requirement("G6")
def test_a_batch_that_is_finished_has_no_lease_any_more(engine: Engine) -> None:
    engine.publish({}, {})
    one, two = engine.poll(max_events=2)
    engine.finish([one])
    assert extend(engine, [one.lease])[one.lease][0] == "held"
    engine.finish([two])
    assert extend(engine, [one.lease]) == {one.lease: ("lost", None)}


def test_a_lease_that_somebody_has_locked_is_busy_and_not_lost(
    engine: Engine, db: Database
) -> None:
    locked, free = lease_of(engine), lease_of(engine)
    other = Engine(db)
    with other.connection.transaction():
        other.connection.execute("select from headrace.leases where id = %s for update", [locked])
        answers = extend(engine, [locked, free])
    assert answers == {
        locked: ("busy", None),
        free: ("held", engine.now() + timedelta(minutes=1)),
    }


@requirement("G16")
def test_another_namespaces_lease_is_not_extended(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="other")
    lease = lease_of(engine)
    before = contents(db)
    assert extend(Engine(db, "other"), [lease]) == {lease: ("lost", None)}
    assert differences(before, contents(db)) == set()


def test_a_lease_is_longer_than_nothing_and_at_most_seven_days_long(
    engine: Engine, db: Database
) -> None:
    lease = lease_of(engine)
    before = contents(db)
    for by in ("0", "-1 second", "1 ms", "7 days 1 microsecond"):
        with refused("QU001", "from 0.1 seconds to 7 days"):
            extend(engine, [lease], by=by)
    assert differences(before, contents(db)) == set()


def test_an_unknown_namespace_or_queue_is_refused(engine: Engine) -> None:
    for namespace, queue, sqlstate in (
        ("nowhere", "main", "QU010"),
        (None, "main", "QU010"),
        ("default", "other", "QU011"),
        ("default", None, "QU011"),
    ):
        with refused(sqlstate):
            engine.call("extend", namespace=namespace, queue=queue, leases=[1])
