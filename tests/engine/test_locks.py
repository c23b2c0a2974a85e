"""How many locks a call takes where ten years are kept: PostgreSQL has room for 64 a session, by default."""

import pytest

from tests.database import Database
from tests.engine.every_function import CALLS, arguments, live
from tests.engine.functions_helpers import Engine

MONTHS = 120
MOST = 128
TEN_YEARS = """
do $$
declare
    parent text;
    key text;
    month timestamptz;
begin
    for parent, key in values ('events', 'created_at'), ('outcomes', 'at'), ('errors', 'at') loop
        for month in
            select (date_trunc('month', now() at time zone 'UTC') - make_interval(months => m)) at time zone 'UTC'
            from generate_series(1, %s) m
        loop
            perform headrace._make_partition(parent, key, month);
        end loop;
    end loop;
end $$
"""
# What looks through the whole log, or through what an event has to do with others, opens all of it: as few as possible.
THE_WHOLE_LOG = {
    *("events", "count_events", "find_events", "lineage", "log_since", "replay", "event_log"),
    *("dead_letter", "dead_letters", "erase"),
    *("state", "save_state", "checkpoint", "low_water", "export_events"),
}


@pytest.fixture
def old_db(db: Database) -> Database:
    """Ten years are kept. Made step by step: each month takes locks as well."""
    for parent in range(0, MONTHS, 20):
        db.sql(TEN_YEARS % min(MONTHS, parent + 20))
    db.sql("select headrace.configure('retention', '11 years')")
    db.sql("select headrace._upkeep()")
    return db


def locks(engine: Engine, function: str, **named: object) -> int:
    """That a call holds until its transaction ends, planned anew and then from the cache; the most of them."""
    held = []
    for _ in range(2):
        engine.connection.execute("begin")
        engine.call(function, **named)
        [(size,)] = engine.db.sql(
            "select count(*) from pg_locks where pid = %s and locktype = 'relation'",
            [engine.connection.info.backend_pid],
        )
        held.append(size)
        engine.connection.execute("rollback")
    return max(held)


def test_a_call_locks_the_months_that_it_needs(old_db: Database) -> None:
    life = live(old_db, "here")
    taken = {}
    for function in CALLS.keys() - THE_WHOLE_LOG:
        engine = Engine(old_db, "here")
        taken[function] = locks(engine, function, **arguments(function, life))
        engine.connection.close()
    assert {name: size for name, size in taken.items() if size > MOST} == {}


def test_few_months_are_planned_once(db: Database) -> None:
    db.sql("select headrace._upkeep()")
    assert db.sql("select headrace._plans_by_month()") == [(False,)]


def test_what_happened_long_ago_is_found_in_its_month(old_db: Database) -> None:
    engine = Engine(old_db)
    [first] = engine.publish({"type": "old"})
    engine.end("fail", engine.claim(), error="No", retry_in="0")
    old_db.advance(days=100)
    engine.tick(upkeep=True)
    [second] = engine.publish({"type": "new"})
    assert [engine.event(one).type for one in (first, second)] == ["old", "new"]
    assert engine.actions(first) == ["EMITTED", "PICKED", "FAILED"]
    claims = engine.poll(max_events=2)
    assert {one.id for one in claims} == {first, second}
    assert engine.finish(claims, {"1": {"action": "fail", "error": "No"}})
    assert engine.finish(claims)[0].verdict in ("conflict", "repeated")


def test_a_clock_that_was_set_back_hides_nothing(old_db: Database) -> None:
    engine = Engine(old_db)
    old_db.advance(days=50)
    engine.tick(upkeep=True)
    engine.publish({"type": "in the future"})
    engine.tick(upkeep=True)
    old_db.advance(days=-45)
    [event] = engine.publish({"type": "now"})
    assert engine.event(event).type == "now"
    engine.tick(upkeep=True)
    old_db.advance(days=45)
    engine.tick(upkeep=True)
    assert engine.event(event).type == "now"


def test_a_poll_of_many_is_the_same_by_month(old_db: Database) -> None:
    engine = Engine(old_db)
    ids = engine.publish(*[{"type": "t", "payload": n} for n in range(50)])
    rows = engine.call("poll_batch", namespace="default", max_events=50)
    assert sorted(one for row in rows for one in row.ids) == ids
