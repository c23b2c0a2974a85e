"""finish, and complete, fail, release and finalize on top of it: how attempts end, each of them once."""

import json
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from psycopg.types.json import Jsonb

from tests.database import STRIDE, Database
from tests.engine.functions_helpers import (
    Engine,
    contents,
    differences,
    refused,
    stop_the_clock,
)
from tests.requirements import requirement

FAIL = {"action": "fail", "error": "It did not work"}
RELEASE = {"action": "release"}
AT_ONCE = {"kind": "fixed", "delay": 0}


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


class Claim(NamedTuple):
    """What finish is told about a delivery."""

    id: int
    attempt: int
    lease: int | None = None


def claims(engine: Engine, number: int, *, each: bool = False, **fields: Any) -> list[Any]:
    engine.publish(*({"payload": n, **fields} for n in range(number)))
    claimed = engine.poll(max_events=number, each=each, worker="host:1")
    assert len(claimed) == number
    return claimed


def verdicts(rows: list[Any]) -> list[tuple[int, str, str | None]]:
    return [(row.item, row.verdict, row.action) for row in rows]


def places(db: Database) -> Counter[str]:
    """How many deliveries are where; each must be in exactly one place."""
    placement = db.placement()
    assert all(len(where) == 1 for where in placement.values()), placement
    return Counter(where[0] for where in placement.values())


# --- completing


@requirement("EQ-4", "EB-3")
@pytest.mark.parametrize("each", [False, True])
def test_a_whole_claim_is_completed(engine: Engine, db: Database, each: bool) -> None:
    for size in (1, 2, 50):
        claimed = claims(engine, size, each=each)
        assert engine.finish(claimed) == []
        assert {engine.event(claim.id).status for claim in claimed} == {"COMPLETED"}
    assert places(db) == {"outcome": 53}
    assert db.sql("select count(*) from headrace.event_queue") == [(0,)]
    assert db.sql("""select action, count(*) from headrace.event_log
                     where action <> 'EMITTED' group by action order by action""") == [
        ("COMPLETED", 53),
        ("PICKED", 53),
    ]  # fmt: skip
    assert engine.poll(max_events=100) == []


@pytest.mark.parametrize("leases", [False, True])
@pytest.mark.parametrize("each", [False, True])
def test_a_claim_is_completed_in_parts(
    engine: Engine, db: Database, each: bool, leases: bool
) -> None:
    claimed = claims(engine, 10, each=each)
    where = "held" if each else "lease"

    assert engine.finish(claimed[3:5], leases=leases) == []
    assert places(db) == {"outcome": 2, where: 8}
    assert engine.finish([claimed[0]], leases=leases) == []
    assert engine.finish([claimed[9], claimed[7], claimed[8]], leases=leases) == []
    assert places(db) == {"outcome": 6, where: 4}
    assert engine.finish([claimed[n] for n in (1, 2, 5, 6)], leases=leases) == []
    assert places(db) == {"outcome": 10}
    if not each:
        assert db.sql("select count(*) from headrace.leases") == [(0,)]


@pytest.mark.parametrize("leases", [False, True])
def test_deliveries_of_several_leases_are_finished_in_one_call(
    engine: Engine, db: Database, leases: bool
) -> None:
    engine.publish(*({"payload": n} for n in range(12)))
    batches = [engine.poll(max_events=3, each=each) for each in (False, True, False, True)]
    # In an order of their own: the third first, held ones and batched ones in turn.
    order = [claim for claim in zip(*reversed(batches), strict=True) for claim in claim]

    assert engine.finish(order[:7], leases=leases) == []
    assert places(db)["outcome"] == 7
    assert engine.finish(order[7:], leases=leases) == []
    assert places(db) == {"outcome": 12}


def test_any_mixture_is_finished_in_one_call(engine: Engine, db: Database) -> None:
    batch = claims(engine, 6)
    held = claims(engine, 6, each=True)
    answers = engine.finish(
        [*batch, *held],
        {
            "2": FAIL,
            "3": RELEASE,
            "4": {"action": "complete"},
            "5": {**FAIL, "reason": "No hope"},
            "8": FAIL,
            "9": RELEASE,
        },
    )

    assert verdicts(answers) == [
        (2, "counted", "FAILED"),
        (3, "counted", "RELEASED"),
        (5, "counted", "FAILED"),
        (8, "counted", "FAILED"),
        (9, "counted", "RELEASED"),
    ]
    assert places(db) == {"outcome": 7, "delayed": 2, "ready": 2, "dead": 1}
    assert engine.dead_letter(batch[4].id).reason == "No hope"


def test_a_batch_is_told_apart_across_buckets_of_ids(engine: Engine, db: Database) -> None:
    db.sql("select setval('headrace.ids', headrace._id_at(1024 * 3 - 6))")
    claimed = claims(engine, 10)
    assert {claim.id // STRIDE >> 10 for claim in claimed} == {2, 3}

    assert engine.finish(claimed, ms=list(range(10)), codes=list(range(200, 210))) == []
    assert db.sql("select bucket, cardinality(events) from headrace.outcomes order by bucket") == [
        (2, 5),
        (3, 5),
    ]
    for n, claim in enumerate(claimed):
        [_, picked, completed] = engine.trail(claim.id)
        assert (picked.action, picked.id) == ("PICKED", claim.lease * 1024 + n)
        assert (completed.execution_time_ms, completed.status_code) == (n, 200 + n)
        assert verdicts(engine.finish([claim])) == [(1, "repeated", "COMPLETED")]


@pytest.mark.parametrize("gap", [1, 400, 2000], ids=["one", "a few", "a bucket"])
def test_a_batch_with_gaps_between_its_ids_is_told_apart_too(
    engine: Engine, db: Database, gap: int
) -> None:
    db.sql("select setval('headrace.ids', headrace._id_at(5 * 1024 - 3))")
    for _ in range(3):
        engine.publish(*({"payload": n} for n in range(4)))
        db.sql("select setval('headrace.ids', nextval('headrace.ids') + %s)", [gap * STRIDE])
    claimed = engine.poll(max_events=100)
    assert len(claimed) == 12

    assert engine.finish(claimed, ms=list(range(12))) == []
    for n, claim in enumerate(claimed):
        [_, picked, completed] = engine.trail(claim.id)
        assert (picked.action, picked.id) == ("PICKED", claim.lease * 1024 + n)
        assert (completed.action, completed.execution_time_ms) == ("COMPLETED", n)


def test_how_long_it_took_and_what_it_returned_are_logged(engine: Engine) -> None:
    for each in (False, True):
        claimed = claims(engine, 4, each=each)
        engine.finish(
            claimed, {"3": FAIL}, ms=[10, None, 30, 40], codes=[200, None, 503, None], leases=False
        )
        ends = [engine.trail(claim.id)[-1] for claim in claimed]
        assert [(end.execution_time_ms, end.status_code) for end in ends] == [
            (10, 200),
            (None, None),
            (30, 503),
            (40, None),
        ]
    [single] = claims(engine, 1)
    engine.end("complete", single, ms=7, code=204)
    end = engine.trail(single.id)[-1]
    assert (end.execution_time_ms, end.status_code) == (7, 204)


def test_an_empty_finish_does_nothing(engine: Engine, db: Database) -> None:
    before = contents(db)
    assert engine.call("finish", namespace="default", queue="main", events=[], attempts=[]) == []
    assert differences(before, contents(db)) == set()


# --- failing


@requirement("EQ-1", "EB-1", "G9")
@pytest.mark.parametrize("each", [False, True])
def test_a_failure_is_retried_after_five_minutes_and_dead_after_three(
    engine: Engine, db: Database, each: bool
) -> None:
    stop_the_clock(db)
    [id] = engine.publish({"type": "a"})
    for failures in (1, 2):
        [answer] = engine.finish([engine.claim(each=each)], {"1": FAIL})
        event = engine.event(id)
        assert (answer.verdict, answer.action, answer.at) == ("counted", "FAILED", engine.now())
        assert answer.retry_at == event.next_retry_at == engine.now() + timedelta(minutes=5)
        assert (answer.retry_count, answer.max_retries) == (failures, 3)
        assert (event.status, event.attempts, event.retry_count) == ("PENDING", failures, failures)
        assert places(db) == {"delayed": 1}
        db.advance(minutes=5)

    [answer] = engine.finish([engine.claim(each=each)], {"1": FAIL})
    assert (answer.retry_at, answer.retry_count, answer.max_retries) == (None, 3, 3)
    event = engine.event(id)
    assert (event.status, event.attempts, event.retry_count) == ("FAILED", 3, 3)
    assert places(db) == {"dead": 1}
    assert engine.actions(id) == ["EMITTED", *["PICKED", "FAILED"] * 3, "DEAD_LETTERED"]
    db.advance(days=1)
    assert engine.poll() == []


@requirement("EB-14", "EQ-14", "G9")
def test_a_delivery_is_dead_after_as_many_failures_as_it_has_retries_and_at_least_one(
    engine: Engine,
) -> None:
    for max_retries, tries in ((0, 1), (1, 1), (2, 2), (5, 5)):
        [id] = engine.publish({"max_retries": max_retries, "backoff": AT_ONCE})
        for _ in range(tries - 1):
            assert engine.end("fail", engine.claim()) is not None
        assert engine.end("fail", engine.claim()) is None
        assert (engine.event(id).status, engine.event(id).attempts) == ("FAILED", tries)


@requirement("G9")
def test_failures_and_crashes_are_counted_together(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"max_retries": 3, "backoff": AT_ONCE})
    engine.end("fail", engine.claim())
    for _ in range(2):
        engine.claim()  # its worker dies; the first time only makes it a suspect
        db.advance(minutes=2)
    last = engine.claim()
    assert (last.attempt, last.retry_count, last.crashes) == (4, 1, 1)
    assert engine.end("fail", last) is None

    letter = engine.dead_letter(id)
    assert (letter.attempts, letter.failures, letter.crashes) == (4, 2, 1)
    assert letter.reason == "Max retries exceeded"


@requirement("G9")
def test_attempts_only_grow_and_the_counters_are_kept_through_everything(
    engine: Engine, db: Database
) -> None:
    [id] = engine.publish({"max_retries": 10})
    seen = []
    for step in ("fail", "release", "crash", "release", "fail", "crash", "release", "complete"):
        claim = engine.claim(each=step == "fail")
        seen.append((claim.attempt, claim.retry_count, claim.crashes))
        if step == "crash":
            db.advance(minutes=2)
        else:
            engine.end(step, claim)
            db.advance(minutes=10)
    assert seen == [
        (1, 0, 0), (2, 1, 0), (3, 1, 0), (4, 1, 0), (5, 1, 0), (6, 2, 0), (7, 2, 1), (8, 2, 1)
    ]  # fmt: skip
    event = engine.event(id)
    assert (event.status, event.attempts, event.retry_count) == ("COMPLETED", 8, 2)


def test_the_policy_is_the_events_then_the_handlers_then_the_queues(
    engine: Engine, db: Database
) -> None:
    stop_the_clock(db)
    db.sql(
        """update headrace.queues set max_retries = 4, backoff = '{"kind": "fixed", "delay": 44}'"""
    )
    of_event = {"max_retries": 2, "backoff": {"kind": "fixed", "delay": 22}}
    of_handler = {"max_retries": 3, "backoff": {"kind": "fixed", "delay": 33}}

    def answer(event: dict[str, Any], handler: dict[str, Any]) -> tuple[int, int]:
        engine.publish(event)
        [row] = engine.finish([engine.claim()], {"1": {**FAIL, **handler}})
        return row.max_retries, (row.retry_at - engine.now()).total_seconds()

    assert answer(of_event, of_handler) == (2, 22)
    assert answer(of_event, {}) == (2, 22)
    assert answer({}, of_handler) == (3, 33)
    assert answer({}, {}) == (4, 44)
    assert answer({"max_retries": 2}, of_handler) == (2, 33)
    assert answer({"backoff": of_event["backoff"]}, of_handler) == (3, 22)
    assert answer({"max_retries": 2}, {}) == (2, 44)


@requirement("PG-25")
def test_the_last_failure_may_say_why_it_is_the_end(engine: Engine) -> None:
    [id] = engine.publish({"max_retries": 2, "backoff": AT_ONCE})
    why = {**FAIL, "last_reason": "Handler error"}
    assert engine.finish([engine.claim()], {"1": why})[0].retry_at is not None
    assert engine.finish([engine.claim()], {"1": why})[0].retry_at is None
    assert engine.dead_letter(id).reason == "Handler error"
    [other] = engine.publish({})
    engine.finish([engine.claim()], {"1": {**why, "reason": "Now"}})
    assert engine.dead_letter(other).reason == "Now"


def test_the_default_policy_is_three_times_five_minutes(engine: Engine, db: Database) -> None:
    assert db.sql("select max_retries, backoff from headrace.queues") == [
        (3, {"kind": "fixed", "delay": 300})
    ]


def test_a_handlers_limit_ends_what_the_queue_would_retry(engine: Engine) -> None:
    [claim] = claims(engine, 1)
    [answer] = engine.finish([claim], {"1": {**FAIL, "max_retries": 0}})
    assert (answer.retry_at, answer.max_retries) == (None, 0)
    assert engine.event(claim.id).status == "FAILED"


def test_the_caller_may_say_when_to_retry(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    for seconds in (0.5, 90, 315_360_000):
        [claim] = claims(engine, 1, backoff={"kind": "fixed", "delay": 7})
        [answer] = engine.finish([claim], {"1": {**FAIL, "retry_in": seconds}})
        assert answer.retry_at == engine.now() + timedelta(seconds=seconds)
        assert engine.event(claim.id).next_retry_at == answer.retry_at


def test_a_retry_without_delay_is_ready_at_once(engine: Engine, db: Database) -> None:
    [claim] = claims(engine, 1)
    engine.finish([claim], {"1": {**FAIL, "retry_in": 0}})
    assert places(db) == {"ready": 1}
    assert engine.claim().attempt == 2


@requirement("G9")
def test_a_retry_is_never_earlier_than_said(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    [claim] = claims(engine, 1)
    engine.finish([claim], {"1": {**FAIL, "retry_in": 60}})
    db.advance(seconds=59.999999)
    assert engine.poll() == []
    assert engine.tick().due == 0
    db.advance(microseconds=1)
    assert engine.claim().attempt == 2


def backoff(db: Database, failures: int, **policy: Any) -> float:
    [(delay,)] = db.sql(
        "select headrace._backoff(%s::jsonb, %s)",
        [json.dumps({"kind": "fixed", "delay": 10, **policy}), failures],
    )
    return delay.total_seconds()


def test_backoff_is_fixed_linear_or_exponential(db: Database) -> None:
    failures = (1, 2, 3, 4)
    assert [backoff(db, n, kind="fixed") for n in failures] == [10, 10, 10, 10]
    assert [backoff(db, n, kind="linear") for n in failures] == [10, 20, 30, 40]
    assert [backoff(db, n, kind="linear", step=5) for n in failures] == [10, 15, 20, 25]
    assert [backoff(db, n, kind="linear", step=0) for n in failures] == [10, 10, 10, 10]
    assert [backoff(db, n, kind="exponential") for n in failures] == [10, 20, 40, 80]
    assert [backoff(db, n, kind="exponential", factor=3) for n in failures] == [10, 30, 90, 270]
    assert [backoff(db, n, kind="exponential", factor=1) for n in failures] == [10, 10, 10, 10]


def test_backoff_has_a_limit(db: Database) -> None:
    assert backoff(db, 5, kind="exponential", max_delay=25) == 25
    assert backoff(db, 3, kind="linear", max_delay=25) == 25
    assert backoff(db, 1000, kind="exponential") == 86400
    assert backoff(db, 32767, kind="linear") == 86400
    assert backoff(db, 32767, kind="linear", step=31_536_000) == 86400
    greatest = {"delay": 31_536_000, "factor": 100, "jitter": 0}
    assert backoff(db, 32767, kind="exponential", **greatest) == 31_536_000
    assert backoff(db, 1, kind="fixed", delay=31_536_000) == 31_536_000
    assert backoff(db, 9, kind="fixed", delay=0) == 0


def test_jitter_only_adds(db: Database) -> None:
    delays = [backoff(db, 2, kind="linear", jitter=0.5) for _ in range(200)]
    assert all(20 <= delay <= 30 for delay in delays)
    assert len(set(delays)) > 100
    assert max(delays) > 28
    assert all(25 <= backoff(db, 9, kind="linear", max_delay=25, jitter=1) <= 50 for _ in range(50))


def test_an_exponential_policy_drives_the_retries(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    engine.publish(
        {"max_retries": 9, "backoff": {"kind": "exponential", "delay": 2, "max_delay": 10}}
    )
    waits = []
    for _ in range(5):
        retry_at = engine.end("fail", engine.claim())
        waits.append((retry_at - engine.now()).total_seconds())
        db.advance(seconds=waits[-1])
    assert waits == [2, 4, 8, 10, 10]


@requirement("EQ-18", "EQ-14")
def test_a_reason_dead_letters_at_once_with_the_status_asked_for(engine: Engine) -> None:
    for status in ("FAILED", "COMPLETED_WITH_ERRORS"):
        [claim] = claims(engine, 1, max_retries=100)
        [answer] = engine.finish([claim], {"1": {**FAIL, "reason": "Poison", "status": status}})
        assert (answer.action, answer.retry_at) == (status, None)
        assert engine.event(claim.id).status == status
        letter = engine.dead_letter(claim.id)
        assert (letter.status, letter.reason, letter.error) == (status, "Poison", FAIL["error"])
        assert engine.actions(claim.id)[-2:] == [status, "DEAD_LETTERED"]


@requirement("EQ-18")
def test_the_status_of_a_dead_letter_waits_until_it_is_dead(engine: Engine) -> None:
    [id] = engine.publish({"max_retries": 2, "backoff": AT_ONCE})
    with_errors = {"1": {**FAIL, "status": "COMPLETED_WITH_ERRORS"}}
    assert engine.finish([engine.claim()], with_errors)[0].action == "FAILED"
    assert engine.finish([engine.claim()], with_errors)[0].action == "COMPLETED_WITH_ERRORS"
    assert engine.event(id).status == "COMPLETED_WITH_ERRORS"
    assert engine.dead_letter(id).reason == "Max retries exceeded"


def test_a_dead_letter_has_everything_with_it(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    fields = {"type": "order", "tags": ["b", "a"], "priority": 2, "max_retries": 1, "title": "T"}
    [id] = engine.publish({**fields, "payload": {"total": 12}})
    created_at = engine.now()
    db.advance(seconds=5)
    engine.end("fail", engine.claim(worker="host:1"), error="Traceback: …")

    row = engine.dead_letter(id)._asdict()
    [(route, queue)] = db.sql("select e.route, q.id from headrace.events e, headrace.queues q")
    assert row == {
        "event": id,
        "queue": queue,
        "namespace": 1,
        "created_at": created_at,
        "died_at": engine.now(),
        "status": "FAILED",
        "reason": "Max retries exceeded",
        "error": "Traceback: …",
        "fingerprint": row["fingerprint"],
        "attempts": 1,
        "failures": 1,
        "crashes": 0,
        "route": route,
        "priority": 2,
        "max_retries": 1,
        "type": "order",
        "tags": ["b", "a"],
        "payload": {"total": 12},
        "details": {"title": "T"},
        "key": None,
    }


def test_an_error_is_kept_with_its_attempt(engine: Engine) -> None:
    engine.publish({"backoff": AT_ONCE})
    for error in ("first\nline", "second", ""):
        engine.end("fail", claim := engine.claim(), error=error)
    errors = [entry.error_message for entry in engine.trail(claim.id) if entry.action == "FAILED"]
    assert errors == ["first\nline", "second", None]


def test_a_very_long_error_is_cut(engine: Engine) -> None:
    [claim] = claims(engine, 1, max_retries=1)
    engine.end("fail", claim, error="é" * 70_000)
    assert engine.dead_letter(claim.id).error == "é" * 65_536
    assert engine.trail(claim.id)[-2].error_message == "é" * 65_536


# --- releasing


@requirement("G9")
@pytest.mark.parametrize("each", [False, True])
def test_a_release_is_ready_at_once_and_charges_nothing(
    engine: Engine, db: Database, each: bool
) -> None:
    claimed = claims(engine, 3, each=each, max_retries=1)
    answers = engine.finish(claimed, {str(n): RELEASE for n in (1, 2, 3)})

    assert verdicts(answers) == [(n, "counted", "RELEASED") for n in (1, 2, 3)]
    assert places(db) == {"ready": 3}
    again = engine.poll(max_events=10)
    assert [claim.id for claim in again] == [claim.id for claim in claimed]
    assert {(c.attempt, c.retry_count, c.crashes) for c in again} == {(2, 0, 0)}


@requirement("G9")
def test_a_delivery_may_be_released_for_ever(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"max_retries": 0})
    for _ in range(20):
        engine.end("release", engine.claim())
        db.advance(minutes=1)  # it comes back later and later, but within a minute
    assert (engine.event(id).status, engine.event(id).attempts) == ("PENDING", 20)
    engine.end("complete", engine.claim())
    assert engine.event(id).status == "COMPLETED"


# --- verdicts


def completed(engine: Engine, claim: Any) -> None:
    engine.end("complete", claim, ms=5)


def failed(engine: Engine, claim: Any) -> None:
    engine.end("fail", claim)


def failed_for_good(engine: Engine, claim: Any) -> None:
    engine.finish([claim], {"1": {**FAIL, "reason": "No hope"}})


def completed_with_errors(engine: Engine, claim: Any) -> None:
    engine.end("finalize", claim, errors=["one", "two"])


def released(engine: Engine, claim: Any) -> None:
    engine.end("release", claim)


def abandoned(engine: Engine, claim: Any) -> None:
    engine.db.advance(minutes=2)
    assert engine.tick().expired == 1


def claimed_again(engine: Engine, claim: Any) -> None:
    abandoned(engine, claim)
    assert engine.claim(each=True).attempt == 2


def dead_by_crash(engine: Engine, claim: Any) -> None:
    engine.db.sql("update headrace.events set max_retries = 1 where id = %s", [claim.id])
    claimed_again(engine, claim)
    abandoned(engine, claim)
    assert engine.event(claim.id).status == "FAILED"


def forget(db: Database) -> None:
    """Leave nothing that the next example could claim."""
    for place in ("ready", "delayed", "held", "leases"):
        db.sql(f"delete from headrace.{place}")


MATRIX: list[tuple[Callable[[Engine, Any], None], str, str, str, str]] = [
    # how it ended, what is stored, and what complete, fail and release are told after it
    (completed, "COMPLETED", "repeated", "conflict", "conflict"),
    (failed, "FAILED", "conflict", "repeated", "conflict"),
    (failed_for_good, "FAILED", "conflict", "repeated", "conflict"),
    (completed_with_errors, "COMPLETED_WITH_ERRORS", "conflict", "repeated", "conflict"),
    (released, "RELEASED", "conflict", "conflict", "repeated"),
    (claimed_again, "ABANDONED", "lost", "lost", "lost"),
    (dead_by_crash, "ABANDONED", "lost", "lost", "lost"),
]
ACTIONS = ({"action": "complete"}, FAIL, RELEASE)


@requirement("G6", "G7", "G8")
@pytest.mark.parametrize("size", [1, 3], ids=["alone", "whose siblings are still at work"])
@pytest.mark.parametrize("each", [False, True])
def test_what_a_second_end_is_told_and_that_it_changes_nothing(
    engine: Engine, db: Database, each: bool, size: int
) -> None:
    for end, stored, *expected in MATRIX:
        if stored == "ABANDONED" and size > 1:
            continue  # its siblings are abandoned with it
        claim, *_ = claims(engine, size, each=each)
        end(engine, claim)
        [ended, *_] = [entry for entry in engine.trail(claim.id) if entry.action == stored]
        before = contents(db)
        for action, verdict in zip(ACTIONS, expected, strict=True):
            for leases in (True, False):
                [answer] = engine.finish([claim], {"1": action}, leases=leases)
                assert (answer.item, answer.verdict) == (1, verdict), (end.__name__, action)
                assert (answer.action, answer.at) == (stored, ended.created_at)
        assert differences(before, contents(db)) == set(), end.__name__
        forget(db)


def finalized(end: Callable[[Engine, Any], None], verdict: str) -> str:
    """What finalize makes of it: what has ended for good stays as it is, and whoever finalizes it is told so."""
    if end in (completed, failed_for_good, completed_with_errors):
        return "repeated"
    return "conflict" if end is failed else verdict


RAISES = {"repeated": None, "conflict": "QU021", "lost": "QU020"}


@requirement("G6", "G7", "G8")
def test_the_calls_for_one_delivery_raise_what_was_lost_or_ended_otherwise(
    engine: Engine, db: Database
) -> None:
    for end, stored, complete, fail, release in MATRIX:
        [claim] = claims(engine, 1)
        end(engine, claim)
        before = contents(db)
        calls: list[tuple[str, dict[str, Any], str]] = [
            ("complete", {}, complete),
            ("fail", {}, fail),
            ("release", {}, release),
            ("finalize", {}, finalized(end, complete)),
            ("finalize", {"errors": ["x"]}, finalized(end, fail)),
            ("finalize", {"success": False}, finalized(end, fail)),
        ]
        for call, arguments, verdict in calls:
            if (sqlstate := RAISES[verdict]) is None:
                engine.end(call, claim, **arguments)
            else:
                with refused(sqlstate, stored if verdict == "conflict" else "lost"):
                    engine.end(call, claim, **arguments)
        assert differences(before, contents(db)) == set(), end.__name__
        forget(db)


@requirement("G6")
def test_an_attempt_that_is_not_the_current_one_ends_nothing(engine: Engine, db: Database) -> None:
    [ready] = engine.publish({"type": "waiting", "priority": 9})
    [batched] = claims(engine, 1)
    [held] = claims(engine, 1, each=True)
    strangers = [
        Claim(ready, 0),
        Claim(ready, 1),
        Claim(batched.id, 0, batched.lease),
        Claim(batched.id, 2, batched.lease),
        Claim(batched.id, 2),
        Claim(held.id, 2, held.lease),
        Claim(held.id, -1),
        Claim(held.id + 1000, 1),
        Claim(0, 1),
        Claim(-1, 1),
        Claim(2**63 - 1, 2**31 - 1, 2**63 - 1),
    ]
    before = contents(db)
    for action in ACTIONS:
        answers = engine.finish(strangers, {str(n): action for n in range(1, len(strangers) + 1)})
        assert [(row.verdict, row.action, row.at) for row in answers] == [
            ("lost", None, None)
        ] * len(strangers)
        for stranger in strangers:
            [answer] = engine.finish([stranger], {"1": action})
            assert answer.verdict == "lost"
    assert differences(before, contents(db)) == set()


@requirement("G6")
def test_a_lease_that_does_not_hold_the_attempt_is_lost_whoever_else_is_named(
    engine: Engine, db: Database
) -> None:
    mine, other, third = claims(engine, 1) + claims(engine, 1) + claims(engine, 1)
    wrong = Claim(mine.id, mine.attempt, other.lease)
    assert verdicts(engine.finish([wrong])) == [(1, "lost", None)]
    assert verdicts(engine.finish([wrong, Claim(third.id, third.attempt)])) == [(1, "lost", None)]
    assert places(db) == {"lease": 2, "outcome": 1}


@requirement("G6", "G7")
def test_items_that_are_lost_do_not_keep_the_others_from_counting(
    engine: Engine, db: Database
) -> None:
    mine = claims(engine, 4)
    lost = [Claim(claim.id, 7, claim.lease) for claim in mine[:2]]
    answers = engine.finish([lost[0], mine[2], lost[1], mine[3]], {"2": FAIL, "3": FAIL})

    assert verdicts(sorted(answers)) == [
        (1, "lost", None),
        (2, "counted", "FAILED"),
        (3, "lost", None),
    ]
    assert places(db) == {"lease": 2, "delayed": 1, "outcome": 1}


@requirement("G7")
@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("leases", [False, True])
def test_a_delivery_that_is_named_twice_in_one_call_ends_once(
    engine: Engine, db: Database, each: bool, leases: bool
) -> None:
    one, two, three = claims(engine, 3, each=each)
    answers = engine.finish(
        [one, one, two, two, three, three], {"2": FAIL, "3": FAIL, "5": RELEASE, "6": FAIL}, leases=leases
    )  # fmt: skip

    assert verdicts(sorted(answers)) == [
        (2, "conflict", "COMPLETED"),
        (3, "counted", "FAILED"),
        (4, "conflict", "FAILED"),
        (5, "counted", "RELEASED"),
        (6, "conflict", "RELEASED"),
    ]
    assert places(db) == {"outcome": 1, "delayed": 1, "ready": 1}
    assert [len(engine.trail(claim.id)) for claim in (one, two, three)] == [3, 3, 3]


@requirement("G7", "G8")
def test_a_whole_batch_that_is_completed_twice_is_told_so(engine: Engine, db: Database) -> None:
    claimed = claims(engine, 5)
    engine.finish(claimed, ms=[1, 2, 3, 4, 5])
    before = contents(db)
    answers = engine.finish(claimed, ms=[6, 7, 8, 9, 0])
    assert verdicts(answers) == [(n, "repeated", "COMPLETED") for n in range(1, 6)]
    assert differences(before, contents(db)) == set()


@requirement("G7", "G8")
def test_a_batch_that_is_completed_whole_after_a_part_of_it_counts_the_rest(
    engine: Engine, db: Database
) -> None:
    claimed = claims(engine, 4)
    engine.end("fail", claimed[1])
    engine.finish([claimed[2]])
    assert verdicts(engine.finish(claimed)) == [
        (2, "conflict", "FAILED"),
        (3, "repeated", "COMPLETED"),
    ]
    assert places(db) == {"outcome": 3, "delayed": 1}
    assert [len(engine.trail(claim.id)) for claim in claimed] == [3, 3, 3, 3]


@requirement("G6")
def test_a_whole_batch_under_other_attempts_is_lost(engine: Engine, db: Database) -> None:
    claimed = claims(engine, 3)
    before = contents(db)
    answers = engine.finish([Claim(claim.id, 2, claim.lease) for claim in claimed])
    assert verdicts(answers) == [(n, "lost", None) for n in (1, 2, 3)]
    assert differences(before, contents(db)) == set()


@requirement("G8")
def test_a_repeated_end_gets_the_first_answer(engine: Engine, db: Database) -> None:
    policy = {"max_retries": 7, "backoff": {"kind": "fixed", "delay": 3, "jitter": 1}}
    for other in (FAIL, {**FAIL, "reason": "x"}, RELEASE):
        [claim] = claims(engine, 1, **policy)
        [first] = engine.finish([claim], {"1": other})
        db.advance(seconds=1)
        [again] = engine.finish([claim], {"1": other})
        assert first.verdict == "counted"
        assert again == first._replace(verdict="repeated")
        forget(db)


@requirement("G8")
def test_a_worker_may_fail_the_same_event_again_in_a_later_attempt(engine: Engine) -> None:
    engine.publish({"backoff": AT_ONCE})
    for attempt in (1, 2):
        claim = engine.claim(worker="host:1")
        [answer] = engine.finish([claim], {"1": FAIL})
        assert (answer.verdict, answer.retry_count) == ("counted", attempt)


@requirement("G6", "G4")
@pytest.mark.parametrize("each", [False, True])
def test_a_finish_after_the_lease_but_before_anybody_took_it_over_counts(
    engine: Engine, db: Database, each: bool
) -> None:
    claimed = claims(engine, 3, each=each)
    db.advance(hours=1)
    assert verdicts(engine.finish(claimed, {"2": FAIL, "3": RELEASE})) == [
        (2, "counted", "FAILED"),
        (3, "counted", "RELEASED"),
    ]
    engine.tick()
    assert places(db) == {"outcome": 1, "delayed": 1, "ready": 1}
    assert [c.crashes for c in engine.poll(max_events=10)] == [0]


# --- arguments


def test_the_arrays_are_of_one_length(engine: Engine, db: Database) -> None:
    one, two = claims(engine, 2)
    right = {"events": [one.id, two.id], "attempts": [1, 1]}
    before = contents(db)
    for wrong in (
        {"attempts": [1]},
        {"attempts": []},
        {"attempts": None},
        {"events": None},
        {"events": []},
        {"leases": [one.lease]},
        {"leases": []},
        {"ms": [1]},
        {"ms": [1, 2, 3]},
        {"codes": []},
    ):
        with refused("QU001", "of one length"):
            engine.call("finish", namespace="default", queue="main", **{**right, **wrong})
    assert differences(before, contents(db)) == set()


WRONG_OTHERS: list[Any] = [
    None,
    [],
    "fail",
    7,
    {"1": None},
    {"1": "fail"},
    {"1": []},
    {"1": [FAIL]},
    {"1": {}},
    {"1": {"action": None}},
    {"1": {"action": 5}},
    {"1": {"action": ["fail"]}},
    {"1": {"action": "FAIL"}},
    {"1": {"action": "forget"}},
    {"0": FAIL},
    {"2": FAIL},
    {"01": FAIL},
    {"-1": FAIL},
    {"x": FAIL},
    {"": FAIL},
    {"99999999999999999999": FAIL},
    {"1": FAIL, "2": RELEASE},
    {"1": {**FAIL, "retry_in": -1}},
    {"1": {**FAIL, "retry_in": "5"}},
    {"1": {**FAIL, "retry_in": "-5"}},
    {"1": {**FAIL, "retry_in": [5]}},
    {"1": {**FAIL, "retry_in": None}},
    {"1": {**FAIL, "retry_in": 315_360_001}},
    {"1": {**FAIL, "max_retries": -1}},
    {"1": {**FAIL, "max_retries": 1001}},
    {"1": {**FAIL, "max_retries": 2.5}},
    {"1": {**FAIL, "max_retries": "2"}},
    {"1": {**FAIL, "max_retries": [2]}},
    {"1": {**FAIL, "max_retries": None}},
    {"1": {**FAIL, "status": 5}},
    {"1": {**FAIL, "status": "COMPLETED"}},
    {"1": {**FAIL, "status": None}},
    {"1": {**FAIL, "status": ["FAILED"]}},
    {"1": {**FAIL, "backoff": None}},
    {"1": {**FAIL, "backoff": {}}},
    {"1": {**FAIL, "backoff": {"kind": "fixed"}}},
    {"1": {**FAIL, "backoff": {"kind": "fixed", "delay": [5]}}},
    {"1": {**FAIL, "backoff": {"kind": "fixed", "delay": 5, "step": 1}}},
    {"1": {**FAIL, "backoff": {"kind": "exponential", "delay": 5, "step": 1}}},
    {"1": {**FAIL, "backoff": {"kind": "linear", "delay": 5, "factor": 2}}},
    {"1": {**FAIL, "backoff": {"kind": "linear", "delay": 5, "step": "1"}}},
    {"1": {**FAIL, "backoff": {"kind": "linear", "delay": 5, "step": 31_536_001}}},
    {"1": {**FAIL, "backoff": {"kind": "exponential", "delay": 5, "factor": 0.9}}},
    {"1": {**FAIL, "backoff": {"kind": "exponential", "delay": 5, "factor": 101}}},
    {"1": {**FAIL, "error": 5}},
    {"1": {**FAIL, "reason": {}}},
    {"1": {**FAIL, "last_reason": 5}},
]


@requirement("G18")
def test_wrong_others_are_refused_and_end_nothing(engine: Engine, db: Database) -> None:
    [claim] = claims(engine, 1)
    before = contents(db)

    def end_with(others: Any) -> None:
        engine.call(
            "finish",
            namespace="default",
            queue="main",
            events=[claim.id],
            attempts=[1],
            others=json.dumps(others),
        )

    accepted = []
    for others in WRONG_OTHERS:
        try:
            with refused("QU001"), engine.connection.transaction():
                end_with(others)
        except (AssertionError, pytest.fail.Exception) as failure:
            accepted.append(f"{others}: {failure}"[:200])
    assert not accepted, "\n".join(accepted)
    assert differences(before, contents(db)) == set()


def test_an_unknown_namespace_or_queue_is_refused(engine: Engine) -> None:
    for namespace in ("nowhere", "", None):
        with refused("QU010"):
            engine.call("finish", namespace=namespace, queue="main", events=[1], attempts=[1])
    for queue in ("other", "", None):
        with refused("QU011"):
            engine.call("finish", namespace="default", queue=queue, events=[1], attempts=[1])


# --- for one delivery


@requirement("EQ-11", "EQ-12", "EQ-14", "EQ-4")
def test_finalize_ends_for_good_by_its_errors(engine: Engine, db: Database) -> None:
    ok, bad = claims(engine, 2, each=True, max_retries=100)
    for _ in range(2):  # the second time it does nothing
        engine.end("finalize", ok)
        engine.end("finalize", bad, errors=["first", "second"])

    assert engine.event(ok.id).status == "COMPLETED"
    assert engine.event(bad.id).status == "COMPLETED_WITH_ERRORS"
    assert engine.actions(ok.id) == ["EMITTED", "PICKED", "COMPLETED"]
    assert engine.actions(bad.id) == [
        "EMITTED",
        "PICKED",
        "COMPLETED_WITH_ERRORS",
        "DEAD_LETTERED",
    ]
    letter = engine.dead_letter(bad.id)
    assert (letter.reason, letter.error) == ("Handler error", "first\nsecond")
    assert db.sql("select count(*) from headrace.event_queue") == [(0,)]


@requirement("EB-9", "EB-3")
def test_finalize_ends_for_good_by_success(engine: Engine, db: Database) -> None:
    ok, bad = claims(engine, 2, max_retries=100)
    for _ in range(2):
        engine.end("finalize", ok, success=True)
        engine.end("finalize", bad, success=False)

    assert engine.event(ok.id).status == "COMPLETED"
    assert engine.event(bad.id).status == "FAILED"
    assert engine.actions(bad.id)[-2:] == ["FAILED", "DEAD_LETTERED"]
    assert db.sql("select count(*) from headrace.event_queue") == [(0,)]


@requirement("EQ-11")
def test_no_list_of_errors_means_no_errors(engine: Engine) -> None:
    [claim] = claims(engine, 1)
    engine.end("finalize", claim, errors=None)
    assert engine.event(claim.id).status == "COMPLETED"


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("lease", [False, True])
def test_one_delivery_is_ended_with_or_without_its_lease(
    engine: Engine, db: Database, each: bool, lease: bool
) -> None:
    claimed = claims(engine, 4, each=each)
    for action, claim in zip(("complete", "fail", "release", "finalize"), claimed, strict=True):
        engine.end(action, claim, **({"lease": claim.lease} if lease else {}))
    assert places(db) == {"outcome": 2, "delayed": 1, "ready": 1}


def test_fail_says_when_it_will_be_tried_again(engine: Engine, db: Database) -> None:
    stop_the_clock(db)
    claimed = claims(engine, 3)
    assert engine.end("fail", claimed[0]) == engine.now() + timedelta(minutes=5)
    assert engine.end("fail", claimed[1], retry_in=timedelta(seconds=1.5)) == (
        engine.now() + timedelta(seconds=1.5)
    )
    with refused("QU001", "retry_in"):
        engine.end("fail", claimed[2], retry_in=timedelta(seconds=-1))
    [dying] = claims(engine, 1, max_retries=1)
    assert engine.end("fail", dying) is None
    assert engine.end("fail", dying) is None  # the same answer


# --- inside the caller's transaction


@requirement("G10")
@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_a_held_delivery_is_finished_with_the_callers_rows_or_not_at_all(
    engine: Engine, db: Database, level: str
) -> None:
    db.sql("create table effects (event bigint primary key)")
    one, two = claims(engine, 2, each=True)

    def handle(claim: Any, *, crash: bool) -> None:
        with engine.connection.transaction(force_rollback=crash):
            engine.connection.execute(f"set transaction isolation level {level}")
            engine.connection.execute("insert into effects values (%s)", [claim.id])
            engine.end("complete", claim)

    handle(one, crash=True)
    assert (places(db), db.sql("select * from effects")) == ({"held": 2}, [])
    handle(one, crash=False)
    assert (places(db), db.sql("select * from effects")) == ({"held": 1, "outcome": 1}, [(one.id,)])
    handle(two, crash=False)
    assert places(db) == {"outcome": 2}


@requirement("G10", "G6")
def test_a_lost_lease_rolls_the_callers_rows_back(engine: Engine, db: Database) -> None:
    db.sql("create table effects (event bigint primary key)")
    [claim] = claims(engine, 1, each=True)
    claimed_again(engine, claim)
    with refused("QU020"), engine.connection.transaction():
        engine.connection.execute("insert into effects values (%s)", [claim.id])
        engine.end("complete", claim)
    assert db.sql("select * from effects") == []


@pytest.mark.parametrize("each", [False, True])
def test_a_finish_that_is_rolled_back_was_none(engine: Engine, db: Database, each: bool) -> None:
    claimed = claims(engine, 4, each=each)
    before = contents(db)
    with engine.connection.transaction(force_rollback=True):
        engine.finish(claimed, {"1": FAIL, "2": RELEASE, "3": {**FAIL, "reason": "x"}})
    assert differences(before, contents(db)) == set()
    assert engine.finish(claimed) == []


@pytest.mark.new_database
def test_a_held_finish_does_not_touch_the_lease(engine: Engine, db: Database) -> None:
    claimed = claims(engine, 2, each=True)
    before = db.sql("select ctid, xmin, l.* from headrace.leases l")
    engine.finish(claimed[:1])
    engine.end("fail", claimed[1])
    assert db.sql("select ctid, xmin, l.* from headrace.leases l") == before


# --- ids


def test_the_numbers_of_one_deliverys_log_grow(engine: Engine) -> None:
    [id] = engine.publish({"backoff": AT_ONCE})
    for action in ("release", "fail", "release", "fail", "fail"):
        engine.end(action, engine.claim())
    numbers = [entry.id for entry in engine.trail(id)]
    assert all(earlier < later for earlier, later in pairwise(numbers))
    assert engine.actions(id)[-1] == "DEAD_LETTERED"


@requirement("EQ-18")
@pytest.mark.parametrize(
    ("dispatch", "status"), [("collect", "COMPLETED_WITH_ERRORS"), ("atomic", "FAILED")]
)
@pytest.mark.parametrize("each", [True, False], ids=["held", "batch"])
@pytest.mark.parametrize("way", ["fail", "fail of a lease", "finish", "report"])
def test_used_up_attempts_end_as_the_claim_says(
    engine: Engine, dispatch: str, status: str, each: bool, way: str
) -> None:
    [id] = engine.publish({"max_retries": 0})
    claimed = engine.claim(each=each, dispatch=dispatch, worker="w1")
    failure = {"1": {"action": "fail", "error": "x"}}
    if way == "report":
        engine.call(
            "report",
            namespace="default",
            queue="main",
            events=[id],
            attempts=[claimed.attempt],
            workers=["w1"],
            others=Jsonb(failure),
        )
    elif way == "finish":
        engine.finish([claimed], failure)
    else:
        lease = {"lease": claimed.lease} if way == "fail of a lease" else {}
        engine.end("fail", claimed, **lease)
        engine.end("fail", claimed, **lease)  # the same again changes nothing
    assert engine.event(id).status == engine.dead_letter(id).status == status
    assert engine.actions(id) == ["EMITTED", "PICKED", status, "DEAD_LETTERED"]


def test_a_failure_that_says_its_status_has_it(engine: Engine) -> None:
    ids = engine.publish(*[{"max_retries": 0}] * 3)
    claims = engine.poll(3, dispatch="collect")
    failure = {"action": "fail", "error": "x"}
    engine.finish(claims, {"1": failure, "2": {**failure, "status": "FAILED"}})
    statuses = [engine.event(id).status for id in ids]
    assert statuses == ["COMPLETED_WITH_ERRORS", "FAILED", "COMPLETED"]


def test_a_failure_that_comes_again_is_called_a_failure(engine: Engine) -> None:
    [id] = engine.publish({"max_retries": 2})
    engine.end("fail", engine.claim(dispatch="collect"), retry_in="0 s")
    assert engine.actions(id)[-1] == "FAILED"
    engine.end("fail", engine.claim(), retry_in="0 s")
    assert engine.event(id).status == "FAILED", "the last claim did not collect"


def test_finalize_refuses_errors_of_a_success(engine: Engine) -> None:
    engine.publish({})
    claimed = engine.claim()
    with refused("QU001", "errors, and success"):
        engine.end("finalize", claimed, errors=["lost"], success=True)
    assert engine.end("finalize", claimed, errors=[], success=True) == "COMPLETED"
