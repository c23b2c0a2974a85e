"""tick: what time has made due, done by whoever calls it."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import (
    Engine,
    Listener,
    contents,
    differences,
    refused,
    stop_the_clock,
)
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def waiting(db: Database) -> list[tuple[Any, ...]]:
    """What is ready, in the order of its numbers, with what it was charged."""
    return db.sql(
        "select event, attempts, failures, crashes, suspect from headrace.ready order by seq"
    )


# --- what is due


@requirement("G4", "G13")
def test_a_delivery_becomes_ready_when_it_is_due_and_not_before(
    engine: Engine, db: Database
) -> None:
    sooner, later = engine.publish({"delay": 10}, {"delay": 20})
    db.advance(seconds=9.999999)
    assert engine.tick().due == 0
    db.advance(microseconds=1)
    assert engine.tick().due == 1
    assert db.placement() == {sooner: ["ready"], later: ["delayed"]}
    db.advance(seconds=10)
    assert engine.tick().due == 1
    assert db.placement() == {sooner: ["ready"], later: ["ready"]}


def test_what_is_due_comes_in_the_order_of_its_time(engine: Engine, db: Database) -> None:
    ids = engine.publish({"delay": 3}, {"delay": 1}, {"delay": 2}, {"delay": 1})
    db.advance(seconds=5)
    assert engine.tick().due == 4
    assert [row[0] for row in waiting(db)] == [ids[1], ids[3], ids[2], ids[0]]


def test_what_is_due_keeps_its_counters_and_its_priority(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"priority": 2, "max_retries": 9})
    engine.end("fail", engine.claim())
    db.advance(minutes=6)
    engine.tick()
    assert waiting(db) == [(id, 1, 1, 0, False)]
    claim = engine.claim()
    assert (claim.attempt, claim.retry_count, claim.priority) == (2, 1, 2)


# --- what ran out


@requirement("EQ-8", "EB-7", "EQ-5", "EB-4", "G4")
@pytest.mark.parametrize("each", [False, True])
def test_a_lease_ends_after_its_time_and_not_before(
    engine: Engine, db: Database, each: bool
) -> None:
    ids = engine.publish({}, {})
    engine.poll(max_events=2, each=each)
    db.advance(seconds=60)
    assert engine.tick().expired == 0
    db.advance(microseconds=1)
    assert engine.tick().expired == 1
    assert db.placement() == {id: ["ready"] for id in ids}
    assert db.sql("select count(*) from headrace.leases") == [(0,)]


@requirement("G9")
@pytest.mark.parametrize("each", [False, True])
def test_a_lease_over_many_charges_nobody_and_suspects_all(
    engine: Engine, db: Database, each: bool
) -> None:
    ids = engine.publish(*({"max_retries": 1} for _ in range(3)))
    engine.poll(max_events=3, each=each, worker="dead:1")
    db.advance(minutes=2)
    engine.tick()
    assert waiting(db) == [(id, 1, 0, 0, True) for id in ids]
    entry = engine.trail(ids[0])[-1]
    assert (entry.action, entry.worker_id, entry.attempt) == ("ABANDONED", "dead:1", 1)
    assert engine.event(ids[0]).status == "PENDING"


@requirement("G9")
@pytest.mark.parametrize("each", [False, True])
def test_the_first_crash_makes_a_suspect_and_only_a_suspect_is_charged(
    engine: Engine, db: Database, each: bool
) -> None:
    [id] = engine.publish({"max_retries": 2})
    for attempts, crashes in ((1, 0), (2, 1)):
        engine.poll(each=each)
        db.advance(minutes=2)
        engine.tick()
        assert waiting(db) == [(id, attempts, 0, crashes, True)]


@requirement("G9")
@pytest.mark.parametrize("each", [False, True])
def test_what_is_left_of_a_lease_over_many_is_not_charged_either(
    engine: Engine, db: Database, each: bool
) -> None:
    ids = engine.publish({}, {}, {}, {})
    claims = engine.poll(max_events=4, each=each)
    engine.finish([claims[0], claims[3]])
    engine.end("fail", claims[1])
    db.advance(minutes=2)
    assert engine.tick().expired == 1
    assert waiting(db) == [(ids[2], 1, 0, 0, True)]
    assert db.placement() == {
        ids[0]: ["outcome"],
        ids[1]: ["delayed"],
        ids[2]: ["ready"],
        ids[3]: ["outcome"],
    }


@requirement("G9", "EB-14", "EQ-18")
def test_a_delivery_whose_workers_crash_is_dead_after_its_retries_and_at_least_one(
    engine: Engine, db: Database
) -> None:
    for max_retries, starts in ((0, 2), (1, 2), (2, 3), (3, 4)):
        [id] = engine.publish({"max_retries": max_retries})
        for _ in range(starts):
            assert engine.claim().id == id
            db.advance(minutes=2)
            engine.tick()
        assert engine.poll() == []
        letter = engine.dead_letter(id)
        assert (letter.status, letter.crashes, letter.failures) == ("FAILED", starts - 1, 0)
        assert (letter.attempts, letter.reason) == (
            starts,
            "Its workers crashed or lost their leases",
        )
        assert letter.payload == {}
        assert engine.actions(id) == [
            *("EMITTED", *["PICKED", "ABANDONED"] * starts, "FAILED", "DEAD_LETTERED")
        ]


@requirement("G9")
def test_a_crash_is_judged_by_the_policy_of_the_handler_that_failed_before_it(
    engine: Engine, db: Database
) -> None:
    """Who ends a lease does not know the handler, whose policy comes before the queue's."""
    [id] = engine.publish({})
    for _ in range(4):  # one more than the queue would allow
        policy = {"action": "fail", "error": "no", "max_retries": 6, "retry_in": 0}
        engine.finish([engine.claim()], {"1": policy})
    for starts in (1, 2, 3):
        assert engine.claim().id == id, starts
        db.advance(minutes=2)
        engine.tick()
    letter = engine.dead_letter(id)
    assert (letter.failures, letter.crashes) == (4, 2)


@requirement("G9", "G4")
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("max_retries", [0, 3])
def test_poison_is_found_and_its_neighbours_live(
    engine: Engine, db: Database, max_retries: int, each: bool
) -> None:
    """A worker that dies of one event takes its whole batch along, again and again."""
    ids = engine.publish(*({"payload": n, "max_retries": max_retries} for n in range(20)))
    poison = ids[7]
    starts = Counter[int]()
    for _ in range(100):
        claims = engine.poll(max_events=10, each=each)
        if not claims:
            break
        starts.update(claim.id for claim in claims)
        assert all(c.retry_count + c.crashes == 0 for c in claims if c.id != poison)
        if poison in [claim.id for claim in claims]:
            db.advance(minutes=2)  # nothing of it is finished
        else:
            engine.finish(claims)
    assert starts[poison] <= max(1, max_retries) + 1
    assert db.placement() == {id: ["dead" if id == poison else "outcome"] for id in ids}


@requirement("EB-10", "EQ-15")
def test_recovery_may_be_done_by_another_worker(engine: Engine, db: Database) -> None:
    [id] = engine.publish({})
    lost = engine.claim(worker="W1")
    db.advance(minutes=2)
    Engine(db).tick()
    recovered = Engine(db).claim(worker="W2")
    assert (recovered.id, recovered.attempt) == (id, 2)
    with refused("QU020"):
        engine.end("complete", lost)
    Engine(db).end("complete", recovered)
    assert [(entry.action, entry.worker_id) for entry in engine.trail(id)][1:] == [
        ("PICKED", "W1"),
        ("ABANDONED", "W1"),
        ("PICKED", "W2"),
        ("COMPLETED", "W2"),
    ]


def test_an_empty_lease_of_held_deliveries_is_cleared_away(engine: Engine, db: Database) -> None:
    engine.publish({}, {})
    engine.finish(engine.poll(max_events=2, each=True))
    assert db.sql("select count(*) from headrace.leases") == [(1,)]
    db.advance(minutes=2)
    assert engine.tick().expired == 0, "nobody lost anything"
    assert db.sql("select count(*) from headrace.leases") == [(0,)]
    assert db.sql("select count(*) from headrace.outcomes where action = 'ABANDONED'") == [(0,)]


# --- its arguments and its answer


def test_the_second_of_two_ticks_finds_nothing_left(engine: Engine, db: Database) -> None:
    engine.publish({"delay": 1}, {}, {})
    engine.poll(max_events=2)
    db.advance(minutes=2)
    first = engine.tick()
    after = contents(db)
    second = engine.tick()
    assert (first.due, first.expired, first.more) == (1, 1, False)
    assert (second.due, second.expired, second.kept_up, second.more) == (0, 0, False, False)
    assert differences(after, contents(db)) == set()


@requirement("G13")
def test_tick_says_what_time_it_took_it_to_be(engine: Engine, db: Database) -> None:
    db.advance(days=1)
    assert engine.tick().at == engine.now()


def test_since_leaves_out_what_was_due_before(engine: Engine, db: Database) -> None:
    old, new = engine.publish({"delay": 10}, {"delay": 60})
    abandoned, fresh = engine.publish({"type": "a"}, {"type": "b"})
    engine.claim(types=["a"], lease=timedelta(seconds=10))
    engine.claim(types=["b"], lease=timedelta(seconds=60))
    since = engine.now() + timedelta(seconds=30)
    db.advance(minutes=2)

    did = engine.tick(since=since)
    assert (did.due, did.expired) == (1, 1)
    assert db.placement() == {
        old: ["delayed"],
        new: ["ready"],
        abandoned: ["lease"],
        fresh: ["ready"],
    }
    did = engine.tick()
    assert (did.due, did.expired) == (1, 1)
    assert set(map(tuple, db.placement().values())) == {("ready",)}


def test_since_takes_what_is_due_at_that_very_time(engine: Engine, db: Database) -> None:
    engine.publish({"delay": 10}, {"type": "a"})
    engine.claim(lease=timedelta(seconds=10))
    since = engine.now() + timedelta(seconds=10)
    db.advance(minutes=1)
    did = engine.tick(since=since)
    assert (did.due, did.expired) == (1, 1)


def test_more_says_that_a_bound_of_what_is_due_was_reached(engine: Engine, db: Database) -> None:
    engine.publish(*({"delay": 1} for _ in range(5001)))
    db.advance(seconds=2)
    first, second = engine.tick(), engine.tick()
    assert (first.due, first.more, second.due, second.more) == (5000, True, 1, False)


def test_more_says_that_a_bound_of_leases_was_reached(engine: Engine, db: Database) -> None:
    ids = engine.publish(*({"payload": n} for n in range(101)))
    for _ in ids:
        engine.claim()
    db.advance(minutes=2)
    first, second = engine.tick(), engine.tick()
    assert (first.expired, first.more, second.expired, second.more) == (100, True, 1, False)
    assert db.placement() == {id: ["ready"] for id in ids}


def test_tick_works_for_every_namespace(engine: Engine, db: Database) -> None:
    engine.call("create_namespace", namespace="other")
    other = Engine(db, "other")
    for each in (engine, other):
        each.publish({"delay": 1}, {})
        each.claim()
    db.advance(minutes=2)
    did = engine.tick()
    assert (did.due, did.expired) == (2, 2)
    assert [each.stats().ready for each in (engine, other)] == [2, 2]


def test_upkeep_is_done_once_an_hour_or_when_asked_for(engine: Engine, db: Database) -> None:
    def keep_up() -> bool:
        while (did := engine.tick()).more:  # a month may have begun
            pass
        return did.kept_up

    assert keep_up()
    db.advance(minutes=59)
    assert not engine.tick().kept_up
    assert engine.tick(upkeep=True).kept_up
    db.advance(minutes=59)
    assert not engine.tick().kept_up
    db.advance(minutes=2)
    assert keep_up()


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_tick_refuses_a_transaction_that_would_not_see_what_others_commit(
    engine: Engine, db: Database, level: str
) -> None:
    [id] = engine.publish({"delay": 1})
    db.advance(minutes=1)
    with refused("QU030", "READ COMMITTED"), engine.connection.transaction():
        engine.connection.execute(f"set transaction isolation level {level}")
        engine.tick()
    assert db.placement() == {id: ["delayed"]}


@requirement("G19")
def test_a_sleeping_worker_is_woken_by_what_becomes_ready(engine: Engine, db: Database) -> None:
    listener = Listener(db)
    engine.publish({"delay": 1}, {"type": "a"})
    engine.claim(types=["a"], lease=timedelta(hours=1))
    listener.fall_asleep()
    listener.heard()

    db.advance(minutes=1)
    assert engine.tick().due == 1
    assert listener.heard() == [""]
    db.advance(hours=2)
    assert engine.tick().expired == 1
    assert listener.heard() == [""]
