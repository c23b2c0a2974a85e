"""Limits of what starts in a time: starts come evenly, with a burst, and in no window more than that."""

import random
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, Listener, stop_the_clock
from tests.engine.limits_helpers import PER_TENANT, change, limit, of, state_of, tenants
from tests.engine.races_helpers import Session
from tests.places import check_places
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def rate(many: int, per: float, burst: int = 0, **scope: Any) -> dict[str, Any]:
    return {"scope": "queue", **scope, "rate": many, "per": per, "burst": burst}


def drained(engine: Engine, most: int = 100) -> int:
    """How many start now, however many polls that takes."""
    many = 0
    while claims := engine.poll(max_events=most):
        many += len(claims)
        engine.finish(claims)
    return many


STARTS = """
select extract(epoch from o.picked_at)::numeric * 1000000, sum(cardinality(o.events))
from headrace.outcomes o where o.picked_at is not null group by 1 order by 1
"""


@pytest.mark.parametrize("seed", range(3))
@requirement("G25")
def test_in_no_window_start_more_than_the_rate_and_the_burst(
    engine: Engine, db: Database, seed: int
) -> None:
    dice = random.Random(seed)
    many, per, burst = dice.choice([(7, 1.0, 0), (5, 0.7, 3), (100, 60, 20), (3, 10, 1)])
    limit(engine, rate(many, per, burst))
    engine.publish(*[{}] * 400)
    for _ in range(150):
        db.step(seconds=round(dice.choice([0, per / many / 3, per / many, per]) * dice.random(), 6))
        engine.finish(engine.poll(max_events=dice.choice([1, 3, 50])))
    starts = [(int(at), int(size)) for at, size in db.sql(STARTS)]
    assert sum(size for _, size in starts) > burst + many
    for first, _ in starts:
        window = [size for at, size in starts if first <= at < first + per * 1_000_000]
        assert sum(window) <= many + burst


def test_starts_come_evenly_and_no_later_than_they_may(engine: Engine, db: Database) -> None:
    limit(engine, rate(7, 1.0))
    engine.publish(*[{}] * 50)
    assert drained(engine) == 1
    for _ in range(6):
        db.step(seconds=0.142857)
        assert drained(engine) == 0
        db.step(microseconds=1)
        assert drained(engine) == 1
    db.step(minutes=10)
    assert drained(engine) == 1, "what was not used is not saved, but for the burst"


def test_a_burst_may_start_at_once(engine: Engine, db: Database) -> None:
    limit(engine, rate(10, 60, 4))
    engine.publish(*[{}] * 50)
    assert drained(engine) == 5
    db.step(seconds=6)
    assert drained(engine) == 1
    db.step(seconds=60)
    assert drained(engine) == 5


def test_each_tenant_has_its_own_rate(engine: Engine) -> None:
    limit(engine, rate(1, 60, 1, scope="tag", prefix="tenant:"))
    engine.publish(*of("a", 9), *of("b", 1), *of("c", 9))
    assert tenants(engine.poll(max_events=50)) == {"a": 2, "b": 1, "c": 2}


def test_starts_are_never_given_back(engine: Engine, db: Database) -> None:
    limit(engine, rate(1, 60, 1))
    engine.publish(*[{}] * 9)
    [one, other] = engine.poll(max_events=9)
    engine.end("release", one, lease=one.lease)
    engine.call("reset", namespace="default", event_id=other.id)
    assert engine.poll(max_events=9) == []
    db.step(seconds=60)
    assert len(engine.poll(max_events=9)) == 1


def test_what_is_published_takes_nothing_of_a_rate(engine: Engine, db: Database) -> None:
    limit(engine, rate(1, 60, 2))
    engine.publish(*[{}] * 9)
    engine.publish(*[{}] * 9)
    assert drained(engine) == 3


def test_a_rate_and_at_once_both_hold(engine: Engine, db: Database) -> None:
    limit(engine, {**rate(1, 60, 5), "at_once": 2})
    engine.publish(*[{}] * 9)
    first = engine.poll(max_events=9)
    assert len(first) == 2
    engine.finish(first)
    assert len(engine.poll(max_events=9)) == 2


def test_a_changed_rate_counts_at_once(engine: Engine, db: Database) -> None:
    limit(engine, rate(1, 3600))
    engine.publish(*[{}] * 50)
    assert drained(engine) == 1
    db.step(seconds=60)
    assert drained(engine) == 0
    limit(engine, rate(60, 3600, 5))
    assert drained(engine) == 1
    db.step(seconds=600)
    assert drained(engine) == 6
    db.step(seconds=600)
    limit(engine, rate(1, 3600))
    assert drained(engine) == 0
    db.step(seconds=3000)
    assert drained(engine) == 1


# The clock ------------------------------------------------------------------------------------------


def test_the_time_of_a_rate_never_runs_backwards(engine: Engine, db: Database) -> None:
    limit(engine, rate(10, 60, 1))
    engine.publish(*[{}] * 50)
    assert drained(engine) == 2
    for _ in range(5):
        db.step(seconds=-5)
        assert drained(engine) == 0
        db.step(seconds=5)
        assert drained(engine) == 0
    db.step(seconds=6)
    assert drained(engine) == 1


def test_a_refill_that_is_dated_far_ahead_is_computed_anew(engine: Engine, db: Database) -> None:
    limit(engine, rate(10, 60, 1))
    engine.publish(*[{}] * 50)
    db.step(days=3)
    assert drained(engine) == 2
    db.step(days=-3)
    assert drained(engine) == 2, "it is as full as that of a group that was never used"
    assert drained(engine) == 0
    db.step(seconds=6)
    assert drained(engine) == 1


# Ordering keys --------------------------------------------------------------------------------------


def test_a_limit_of_keys_is_one_for_each(engine: Engine, db: Database) -> None:
    limit(engine, rate(1, 10, scope="key"))
    k = engine.publish(*[{"key": "k"}] * 3)
    l = engine.publish({"key": "l"})  # noqa: E741 - a key's name
    free = engine.publish({}, {})
    assert sorted(started(engine)) == [k[0], *l, *free]
    db.step(seconds=9)
    assert started(engine) == []
    check_keys(db)
    db.step(seconds=1)
    assert started(engine) == [k[1]]
    db.step(seconds=10)
    assert started(engine) == [k[2]]
    check_places(db.sql)


def started(engine: Engine) -> list[int]:
    ids = []
    while claims := engine.poll(max_events=10):
        ids += [claim.id for claim in claims]
        engine.finish(claims, leases=False)
    return ids


def check_keys(db: Database) -> None:
    """A key that waits for its rate has no token."""
    check_places(db.sql)
    assert db.sql("select count(*) from headrace.limit_keys") == [(1,)]
    assert db.sql("select count(*) from headrace.ready where key is not null") == [(0,)]


def test_a_backlog_of_one_key_does_not_hold_up_others(engine: Engine, db: Database) -> None:
    limit(engine, rate(1, 3600, scope="key"))
    engine.publish(*[{"key": "full"}] * 500)
    assert len(engine.poll(max_events=10)) == 1
    engine.publish({"key": "other"}, {"key": "another"})
    assert {engine.event(claim.id).id for claim in engine.poll(max_events=10)}


def test_a_tick_lets_keys_start_again_and_wakes_workers(engine: Engine, db: Database) -> None:
    limit(engine, rate(1, 10, scope="key"))
    engine.publish(*[{"key": "k"}] * 2)
    assert len(started(engine)) == 1
    sleeper = Listener(db)
    sleeper.fall_asleep()
    db.step(seconds=10)
    engine.tick()
    assert sleeper.heard()
    assert len(started(engine)) == 1


def test_keys_are_free_when_their_limit_goes(engine: Engine, db: Database) -> None:
    limit(engine, rate(1, 3600, scope="key"))
    engine.publish(*[{"key": "k"}] * 3)
    assert len(started(engine)) == 1
    limit(engine)
    assert len(started(engine)) == 2
    check_places(db.sql)


def test_a_queue_of_strict_order_has_limits_of_keys_too(engine: Engine, db: Database) -> None:
    change(engine, order="oldest", limits=[rate(1, 10, scope="key")])
    k = engine.publish(*[{"key": "k"}] * 2)
    free = engine.publish({}, {})
    assert sorted(started(engine)) == [k[0], *free]
    db.step(seconds=10)
    assert started(engine) == [k[1]]


# When to look again ---------------------------------------------------------------------------------


def look_in(engine: Engine) -> Any:
    rows = engine.call("poll_batch", namespace="default", max_events=5)
    assert [row.ids for row in rows] in ([], [[]])
    return rows[0].look_in if rows else None


def test_a_claim_that_waits_for_a_rate_tells_when_to_look_again(
    engine: Engine, db: Database
) -> None:
    limit(engine, rate(1, 60))
    engine.publish(*[{}] * 5)
    assert drained(engine) == 1
    db.step(seconds=20)
    assert look_in(engine) == pytest.approx(40, abs=0.01)
    assert state_of(engine).waiting == 4


def test_a_claim_that_waits_for_a_slot_does_not_tell(engine: Engine, db: Database) -> None:
    limit(engine, {**PER_TENANT, "at_once": 1})
    engine.publish(*of("a", 5))
    engine.claim()
    assert look_in(engine) is None


def test_a_claim_tells_when_a_key_may_start(engine: Engine, db: Database) -> None:
    limit(engine, rate(1, 60, scope="key"))
    engine.publish(*[{"key": "k"}] * 2)
    assert len(started(engine)) == 1
    db.step(seconds=20)
    assert look_in(engine) == pytest.approx(40, abs=0.01)


def test_two_claims_at_the_same_time_take_no_start_twice(db: Database, engine: Engine) -> None:
    limit(engine, rate(1, 3600, 2))
    engine.publish(*[{}] * 9)
    one, other = Session(db), Session(db).hurry()
    one.begin()
    assert len(one.poll(2)) == 2
    assert other.poll(9) == []
    one.commit()
    assert len(other.poll(9)) == 1
