"""complete_held: one delivery that is held on its own is completed, with nothing else locked."""

from typing import Any

import psycopg
import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def claims(engine: Engine, count: int, **arguments: Any) -> list[Any]:
    engine.publish(*({"payload": n, **arguments} for n in range(count)))
    claimed = engine.poll(max_events=count, each=True, worker="host:7")
    assert claimed
    return claimed


def complete(engine: Engine, claim: Any, **arguments: Any) -> bool:
    [answer] = engine.call(
        "complete_held",
        **{"namespace": "default", "queue": "main", "event": claim.id, "attempt": claim.attempt}
        | arguments,
    )
    return bool(answer[0])


@requirement("G9")
def test_one_that_is_held_is_completed_and_logged(engine: Engine, db: Database) -> None:
    first, second, third = claims(engine, 3)
    assert complete(engine, second, ms=5, code=204)
    assert complete(engine, third)
    assert db.placement() == {
        first.id: ["held"],
        second.id: ["outcome"],
        third.id: ["outcome"],
    }
    [_, picked, completed] = engine.trail(second.id)
    assert (picked.id, picked.worker_id) == (second.lease * 1024 + 1, "host:7")
    assert (completed.action, completed.attempt) == ("COMPLETED", 1)
    assert (completed.execution_time_ms, completed.status_code) == (5, 204)
    end = engine.trail(third.id)[-1]
    assert (end.execution_time_ms, end.status_code) == (None, None)
    stats = engine.stats()
    assert (stats.completed, stats.attempts, stats.average_ms) == (2, 2, 5)


def test_it_is_completed_as_finish_completes_it(engine: Engine, db: Database) -> None:
    db.sql("create table noon as select headrace._now() as at")
    db.sql("""create or replace function headrace._now() returns timestamptz
              language sql as 'select at from public.noon'""")
    engine.publish({}, {})
    one, other = engine.poll(max_events=2, each=True, suspects=False)
    assert complete(engine, one, ms=5, code=1)
    # As a batch, and so not by complete_held.
    engine.finish([other], leases=False, ms=[5], codes=[1], others={"1": {"action": "complete"}})
    assert db.sql(
        "select count(distinct to_jsonb(c)), count(*) from headrace.counts c where completed = 1"
    ) == [(1, 2)]
    first, second = db.sql(
        "select to_jsonb(o) - '{id,events,positions}'::text[] from headrace.outcomes o order by id"
    )
    assert first == second


@requirement("G5")
def test_what_is_not_held_under_this_attempt_stays_as_it_is(engine: Engine, db: Database) -> None:
    [held] = claims(engine, 1)
    engine.publish({})
    [batched] = engine.poll(max_events=1)
    before = contents(db)
    assert not complete(engine, held, attempt=2)
    assert not complete(engine, held, event=held.id + 1000)
    assert not complete(engine, held, event=None)
    assert not complete(engine, batched)
    assert differences(before, contents(db)) == set()
    assert complete(engine, held)
    before = contents(db)
    assert not complete(engine, held)
    assert differences(before, contents(db)) == set()


def test_the_next_of_its_ordering_key_has_its_turn(engine: Engine) -> None:
    [first] = claims(engine, 2, key="a")
    assert engine.poll(max_events=2) == []
    assert complete(engine, first)
    [second] = engine.poll(max_events=2)
    assert second.id > first.id


@pytest.mark.parametrize("level", list(psycopg.IsolationLevel))
def test_nobody_waits_for_an_open_completion_of_a_sibling_or_a_heartbeat(
    db: Database, engine: Engine, level: psycopg.IsolationLevel
) -> None:
    first, second = claims(engine, 2)
    other = Engine(db)
    other.connection.execute("set lock_timeout = '25ms'")
    engine.connection.isolation_level = level
    with engine.connection.transaction():
        assert complete(engine, first)
        assert complete(other, second)
        other.call("extend", namespace="default", queue="main", leases=[first.lease])
    assert db.placement() == {first.id: ["outcome"], second.id: ["outcome"]}
