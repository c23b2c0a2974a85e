"""A delivery that is released with a delay is snoozed: later, uncharged, and in the log with the time."""

from datetime import timedelta
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused, stop_the_clock

SNOOZE = {"action": "release", "delay": 30}
TOO_MANY = "It was snoozed more often than the max_snoozes of its queue allow"


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def snoozed(engine: Engine, seconds: float = 30, **options: Any) -> Any:
    claim = engine.claim(**options)
    [verdict] = engine.finish([claim], {"1": {**SNOOZE, "delay": seconds}})
    return verdict


@pytest.mark.parametrize("each", [False, True])
def test_a_snoozed_delivery_comes_back_after_its_delay_and_not_before(
    engine: Engine, db: Database, each: bool
) -> None:
    [id] = engine.publish({"max_retries": 1})
    due = engine.now() + timedelta(seconds=30)
    verdict = snoozed(engine, each=each)

    assert (verdict.verdict, verdict.action, verdict.retry_at) == ("counted", "SNOOZED", due)
    assert engine.event(id).next_retry_at == due
    db.advance(seconds=29)
    assert engine.poll() == []
    db.advance(seconds=1)
    again = engine.claim()
    assert (again.attempt, again.retry_count, again.crashes) == (2, 0, 0)


def test_the_log_says_until_when_it_was_snoozed(engine: Engine, db: Database) -> None:
    [id] = engine.publish({})
    due = engine.now() + timedelta(seconds=30)
    snoozed(engine)

    assert [(one.action, one.due_at) for one in engine.trail(id)] == [
        ("EMITTED", None),
        ("PICKED", None),
        ("SNOOZED", due),
    ]
    told = engine.call("log_since", namespace="default", actions=["SNOOZED"])
    assert [(one.event_id, one.due_at) for one in told if one.action] == [(id, due)]


def test_snoozes_of_one_lease_have_their_own_times_in_the_log(engine: Engine) -> None:
    ids = engine.publish(*[{}] * 3)
    claims = engine.poll(max_events=3)
    delays = (10, 20, 10)
    engine.finish(claims, {str(n): {**SNOOZE, "delay": d} for n, d in enumerate(delays, 1)})

    due = [engine.trail(id)[-1].due_at - engine.now() for id in ids]
    assert due == [timedelta(seconds=delay) for delay in delays]


def test_a_delivery_is_snoozed_without_end_and_charged_for_none_of_it(
    engine: Engine, db: Database
) -> None:
    [id] = engine.publish({"max_retries": 1})
    for _ in range(20):
        snoozed(engine)
        db.advance(seconds=30)  # each after its own delay, however many there were before
    stands = engine.event(id)
    assert (stands.status, stands.attempts, stands.retry_count, stands.snoozes) == (
        *("PENDING", 20, 0, 20),
    )
    assert engine.call("deliveries", namespace="default", event_id=id)[0].snoozes == 20
    engine.end("complete", engine.claim())
    assert (engine.event(id).status, engine.event(id).snoozes) == ("COMPLETED", 20)


@pytest.mark.parametrize("delay", [0, 0.000001, 0.099])
def test_a_snooze_under_a_tenth_of_a_second_is_raised_to_it(engine: Engine, delay: float) -> None:
    engine.publish({})
    assert snoozed(engine, delay).retry_at - engine.now() == timedelta(milliseconds=100)


def test_the_progress_of_a_snoozed_delivery_is_kept(engine: Engine, db: Database) -> None:
    [id] = engine.publish({})
    claim = engine.claim()
    saved = {"event": id, "attempt": claim.attempt, "progress": Jsonb(7)}
    engine.call("save_progress", namespace="default", **saved)
    engine.finish([claim], {"1": SNOOZE})
    [kept] = engine.call("progress", namespace="default", events=[id])
    assert kept.progress == 7


def test_a_release_calls_a_snooze_by_its_delay(engine: Engine, db: Database) -> None:
    [id] = engine.publish({})
    engine.end("release", engine.claim(), delay=timedelta(seconds=30))
    assert engine.actions(id)[-1] == "SNOOZED"
    assert db.placement() == {id: ["delayed"]}


def test_a_repeated_snooze_gets_its_first_answer_and_another_end_a_conflict(
    engine: Engine, db: Database
) -> None:
    engine.publish({})
    claim = engine.claim()
    [first] = engine.finish([claim], {"1": SNOOZE})
    before = contents(db)
    [again] = engine.finish([claim], {"1": {**SNOOZE, "delay": 99}})
    assert (again.verdict, again.action, again.at, again.retry_at) == (
        *("repeated", "SNOOZED", first.at, first.retry_at),
    )
    for other in ({"action": "release"}, {"action": "fail"}, {"action": "complete"}):
        [verdict] = engine.finish([claim], {"1": other})
        assert (verdict.verdict, verdict.action) == ("conflict", "SNOOZED")
    assert differences(before, contents(db)) == set()


def test_the_others_of_its_ordering_key_wait_for_a_snoozed_delivery(
    engine: Engine, db: Database
) -> None:
    first, second = engine.publish({"key": "k"}, {"key": "k"})
    snoozed(engine)
    assert engine.poll(max_events=2) == []
    db.advance(seconds=30)
    engine.tick()
    assert engine.claim().id == first
    assert engine.poll(max_events=2) == []
    assert second


def test_a_snooze_breaks_a_row_of_releases(engine: Engine, db: Database) -> None:
    [id] = engine.publish({})
    engine.end("release", engine.claim())
    snoozed(engine)
    db.advance(seconds=30)
    engine.end("release", engine.claim())
    assert engine.event(id).next_retry_at is None


def limit(engine: Engine, most: int | None) -> None:
    settings = Jsonb({"max_snoozes": most})
    engine.call("change_queue", namespace="default", queue="main", settings=settings)


def test_a_snooze_beyond_the_limit_of_the_queue_is_a_failure_that_says_so(
    engine: Engine, db: Database
) -> None:
    limit(engine, 2)
    [id] = engine.publish({"max_retries": 2, "backoff": {"kind": "fixed", "delay": 60}})
    for _ in range(2):
        assert snoozed(engine).action == "SNOOZED"
        db.advance(seconds=30)
    claim = engine.claim()
    [verdict] = engine.finish([claim], {"1": SNOOZE})
    assert (verdict.verdict, verdict.action, verdict.retry_count) == ("counted", "FAILED", 1)
    assert verdict.retry_at - engine.now() == timedelta(seconds=60)
    assert engine.trail(id)[-1].error_message == TOO_MANY
    [again] = engine.finish([claim], {"1": SNOOZE})
    assert (again.verdict, again.action, again.retry_at) == ("repeated", "FAILED", verdict.retry_at)

    db.advance(seconds=60)
    assert snoozed(engine).action == "FAILED"
    assert engine.event(id).status == "FAILED"
    assert engine.dead_letter(id).reason == TOO_MANY


def test_a_redriven_delivery_may_be_snoozed_anew(engine: Engine, db: Database) -> None:
    limit(engine, 1)
    [id] = engine.publish({"max_retries": 1})
    snoozed(engine)
    db.advance(seconds=30)
    assert snoozed(engine).action == "FAILED"
    engine.call("redrive", namespace="default")
    assert engine.event(id).snoozes == 0
    assert snoozed(engine).action == "SNOOZED"


def test_only_snoozes_count_towards_the_limit(engine: Engine, db: Database) -> None:
    limit(engine, 1)
    engine.publish({"max_retries": 9})
    for action in ("release", "fail", "release"):
        engine.finish([engine.claim()], {"1": {"action": action}})
        db.advance(minutes=6)
    assert snoozed(engine).action == "SNOOZED"


def test_a_claim_that_collects_names_the_status_of_a_snooze_too_many(engine: Engine) -> None:
    limit(engine, 0)
    [id] = engine.publish({"max_retries": 1})
    snoozed(engine, dispatch="collect")
    assert engine.event(id).status == "COMPLETED_WITH_ERRORS"


@pytest.mark.parametrize(
    "other",
    [
        {"action": "release", "delay": -1},
        {"action": "release", "delay": 315_360_001},
        {"action": "release", "delay": "30"},
        {"action": "release", "delay": None},
        {"action": "release", "delay": [30]},
        {"action": "fail", "delay": 30},
        {"action": "complete", "delay": 30},
    ],
)
def test_a_snooze_that_is_no_time_is_refused_and_ends_nothing(
    engine: Engine, db: Database, other: dict[str, Any]
) -> None:
    engine.publish({})
    claim = engine.claim()
    before = contents(db)
    with refused("QU001", "delay"):
        engine.finish([claim], {"1": other})
    assert differences(before, contents(db)) == set()


@pytest.mark.parametrize("most", [-1, 1.5, "1", 1_000_001])
def test_a_limit_of_snoozes_that_is_none_is_refused(engine: Engine, most: Any) -> None:
    with refused("QU001", "max_snoozes"):
        limit(engine, most)
