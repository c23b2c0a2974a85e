from typing import Any

import pytest

from headrace import FinishConflict, InvalidInput, LeaseLost, NewEvent
from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.requirements import requirement


@requirement("EQ-1", "EQ-6", "EB-5", "G1")
def test_a_published_event_is_pending_and_has_not_been_tried(queue: Any) -> None:
    event = queue.publish("order.created", {"order": 42}, tags=["high"])
    assert (event.status, event.attempts, event.payload) == ("PENDING", 0, {"order": 42})
    assert queue.event(event.id).status == "PENDING"


def test_what_publish_returns_is_what_is_stored(queue: Any, db: Database) -> None:
    described = {
        "title": "An order",
        "description": "of 42",
        "version": "1.0.0",
        "source": {"type": "task", "id": "t-1"},
        "correlation_id": "c",
        "causation_id": "b",
        "trace_id": "t",
        "producer": "shop:1",
        "headers": {"tenant": "acme", "seen": [1, None]},
        "backoff": {"kind": "linear", "delay": 2},
    }
    event = queue.publish(
        "order", [1, None], tags=[" a ", "b"], priority=0, max_retries=7, **described
    )
    assert queue.event(event.id) == event
    assert {name: getattr(event, name) for name in described} == described


@requirement("EQ-7", "EQ-10", "EB-6", "EB-8")
def test_a_poll_claims_and_counts_the_attempt(queue: Any) -> None:
    event = queue.publish("a", {"n": 1})
    (claimed,) = queue.poll(worker="host:1")
    assert (claimed.id, claimed.attempt, claimed.payload) == (event.id, 1, {"n": 1})
    stored = queue.event(event.id)
    assert (stored.status, stored.attempts, stored.worker_id) == ("PROCESSING", 1, "host:1")
    assert stored.processing_started_at == stored.updated_at >= event.created_at
    assert stored.lease_expires_at == claimed.lease_expires_at


@requirement("EQ-7", "EB-6")
def test_a_poll_of_an_empty_queue_is_an_empty_list(queue: Any) -> None:
    assert queue.poll() == []
    assert queue.poll(max_events=1000) == []


@requirement("EQ-4", "EQ-14", "EB-3")
def test_a_completed_event_leaves_the_queue_and_enters_the_log(queue: Any, db: Database) -> None:
    event = queue.publish("a")
    (claimed,) = queue.poll()
    queue.complete(claimed, execution_time_ms=12, status_code=200)
    assert queue.event(event.id).status == "COMPLETED"
    assert db.placement() == {event.id: ["outcome"]}
    log = queue.log(event.id)
    assert [entry.action for entry in log] == ["EMITTED", "PICKED", "COMPLETED"]
    assert (log[-1].execution_time_ms, log[-1].status_code, log[-1].attempt) == (12, 200, 1)


def test_a_failed_event_comes_back_by_the_policy_and_dies_when_it_is_used_up(
    queue: Any, db: Database
) -> None:
    event = queue.publish("a")
    for attempt in (1, 2):
        (claimed,) = queue.poll()
        verdict = queue.fail(claimed, f"broken {attempt}")
        assert (verdict.verdict, verdict.retry_count, verdict.max_retries) == (
            "counted",
            attempt,
            3,
        )
        assert queue.event(event.id).next_retry_at == verdict.retry_at
        db.advance(minutes=4.9)
        assert queue.poll() == []
        db.advance(minutes=0.2)
        queue.tick()
    (claimed,) = queue.poll()
    assert (claimed.attempt, claimed.retry_count, claimed.max_retries) == (3, 2, 3)
    verdict = queue.fail(claimed, "broken 3")
    assert (verdict.action, verdict.retry_at, verdict.retry_count) == ("FAILED", None, 3)
    assert db.placement() == {event.id: ["dead"]}
    assert queue.event(event.id).status == "FAILED"


@requirement("EQ-5", "EQ-8", "EQ-15", "EQ-16", "EB-4", "EB-7", "G4")
def test_the_event_of_a_dead_worker_is_claimed_again_after_a_minute(
    queue: Any, db: Database
) -> None:
    stop_the_clock(db)
    queue.publish("a")
    (lost,) = queue.poll()
    db.advance(seconds=59)
    assert queue.poll() == []
    db.advance(seconds=2)
    queue.tick()
    (claimed,) = queue.poll()
    assert (claimed.id, claimed.attempt, claimed.crashes) == (lost.id, 2, 0)
    queue.complete(claimed)
    with pytest.raises(LeaseLost):
        queue.complete(lost)


def test_a_released_event_is_ready_at_once_and_not_charged(queue: Any) -> None:
    queue.publish("a", max_retries=0)
    (claimed,) = queue.poll()
    assert queue.release(claimed).action == "RELEASED"
    (again,) = queue.poll()
    assert (again.id, again.attempt, again.retry_count, again.crashes) == (claimed.id, 2, 0, 0)


@requirement("EQ-11", "EQ-14")
@pytest.mark.parametrize(
    ("errors", "success", "status"),
    [
        ((), None, "COMPLETED"),
        (["one", ValueError("two")], None, "COMPLETED_WITH_ERRORS"),
        ("one", None, "COMPLETED_WITH_ERRORS"),
        ((), True, "COMPLETED"),
        ((), False, "FAILED"),
        (["one"], False, "FAILED"),
    ],
)
@requirement("EB-9")
def test_finalize_is_the_end_whatever_the_retry_policy_says(
    queue: Any, db: Database, errors: Any, success: bool | None, status: str
) -> None:
    event = queue.publish("a", max_retries=9)
    (claimed,) = queue.poll()
    queue.finalize(claimed, errors, success=success)
    assert queue.event(event.id).status == status
    assert db.placement() == {event.id: ["outcome" if status == "COMPLETED" else "dead"]}


@requirement("EQ-11", "EQ-12", "EQ-20")
def test_finalize_takes_an_id_and_repeating_it_does_nothing(queue: Any, db: Database) -> None:
    event = queue.publish("a")
    queue.poll()
    for _ in range(3):
        queue.finalize(event.id, ["broken"])
    assert [entry.action for entry in queue.log(event.id)].count("COMPLETED_WITH_ERRORS") == 1
    log = queue.log(event.id)
    for other in ((), (["another"],), (True,), (False,)):
        verdict = queue.finalize(event.id, *other)
        assert (verdict.verdict, verdict.action) == ("repeated", "COMPLETED_WITH_ERRORS")
    assert queue.log(event.id) == log


def test_finalize_knows_the_claim_that_another_call_has_ended(queue: Any) -> None:
    event = queue.publish("a")
    (claimed,) = queue.poll()
    queue.complete([claimed])
    queue.finalize(event.id)
    queue.finalize(event.id)


def test_an_id_means_the_claim_of_this_client_and_of_no_other(client: Any) -> None:
    mine, other = client.queue(), client.queue()
    event = mine.publish("a")
    mine.poll()
    with pytest.raises(LeaseLost) as raised:
        other.finalize(event.id)
    assert raised.value.ids == (event.id,)
    assert mine.event(event.id).status == "PROCESSING"


def test_finalizing_an_event_that_was_claimed_again_means_the_new_claim(
    queue: Any, db: Database
) -> None:
    event = queue.publish("a")
    (first,) = queue.poll()
    queue.release(first)
    (second,) = queue.poll()
    with pytest.raises(FinishConflict):
        queue.complete(first)
    queue.finalize(event.id)
    assert queue.resolve(second) == "COMPLETED"
    assert queue.resolve(first) == "RELEASED"


def test_one_event_is_polled_or_none(queue: Any, db: Database) -> None:
    assert queue.poll_one() is None
    first, second = (queue.publish(NewEvent("a", n, tags=["x"])) for n in (1, 2))
    queue.publish("b")
    claimed = queue.poll_one(types=["a"], tags=["x"], lease=30, worker="w")
    assert (claimed.id, claimed.status, claimed.attempts) == (first.id, "PROCESSING", 1)
    now = queue.event(first.id)
    assert (claimed.updated_at, claimed.processing_started_at) == (now.updated_at,) * 2
    assert (claimed.lease_expires_at - claimed.updated_at).total_seconds() == 30
    assert queue.finalize(claimed.id).verdict == "counted"
    assert queue.poll_one(types=["a"], each=True).id == second.id


@pytest.mark.one_database("a poll makes a lease on each shard")
def test_many_that_are_polled_know_when(queue: Any, db: Database) -> None:
    queue.publish_many([("a", n) for n in range(40)])
    queue.publish_many([("b", "x" * 3000), ("c", 1)])
    claims = queue.poll(max_events=50)
    assert len(claims) == 42
    picked = {queue.event(claim.id).processing_started_at for claim in claims}
    assert {claim.updated_at for claim in claims} == picked
    assert len(picked) == 1


@pytest.mark.parametrize("success", [True, False])
def test_a_bare_id_is_answered_with_what_is_stored_whoever_ended_it(
    client: Any, db: Database, success: bool
) -> None:
    mine, other = client.queue(), client.queue()
    event = mine.publish("a")
    claimed = mine.poll_one()
    assert mine.finalize(event.id, success).verdict == "counted"
    stored = mine.event(event.id)
    for somebody in (mine, other):
        for how in (True, False, ["an error"]):
            verdict = somebody.finalize(event.id, how)
            assert (verdict.verdict, verdict.action) == ("repeated", stored.status)
            assert verdict.at == stored.updated_at
    assert mine.finalize(claimed, not success).action == stored.status
    assert mine.event(event.id) == stored
    wrong = mine.fail if success else mine.complete
    with pytest.raises(FinishConflict):
        wrong(claimed)


def test_what_an_administrator_has_cancelled_is_finalized(client: Any) -> None:
    mine, other = client.queue(), client.queue()
    event = mine.publish("a")
    claimed = mine.poll_one()
    other.cancel(event.id)
    assert mine.finalize(event.id).action == "CANCELLED"
    assert other.finalize(event.id).action == "CANCELLED"
    with pytest.raises(LeaseLost):
        mine.finalize(claimed)


@pytest.mark.parametrize("errors", [(), ["broken"]])
def test_what_comes_again_is_not_finalized(client: Any, db: Database, errors: Any) -> None:
    mine, other = client.queue(), client.queue()
    event = mine.publish("a")
    first = mine.poll_one()
    mine.fail(first, "broken", retry_in=0)
    for somebody in (mine, other):
        with pytest.raises(LeaseLost) as raised:
            somebody.finalize(event.id, errors)
        assert raised.value.ids == (event.id,)
    with pytest.raises(FinishConflict):
        mine.finalize(first, errors)
    other.poll_one()
    with pytest.raises(LeaseLost):
        mine.finalize(event.id, errors)
    assert other.finalize(event.id, errors).verdict == "counted"
    with pytest.raises(FinishConflict):
        mine.finalize(first, errors)
    assert mine.finalize(event.id).action == other.event(event.id).status


def test_a_claim_that_was_lost_finalizes_nothing(client: Any, db: Database) -> None:
    mine, other = client.queue(), client.queue()
    event = mine.publish("a")
    lost = mine.poll_one()
    db.advance(seconds=61)
    again = other.poll_one()
    with pytest.raises(LeaseLost):
        mine.finalize(lost)
    with pytest.raises(LeaseLost):
        mine.finalize(event.id)
    other.finalize(again.id)
    with pytest.raises(LeaseLost):
        mine.finalize(lost)
    assert mine.finalize(event.id).action == "COMPLETED"


@pytest.mark.one_database("a transaction is one database's")
def test_a_refused_finalize_spoils_no_transaction(client: Any) -> None:
    mine, other = client.queue(), client.queue()
    event = mine.publish("a")
    mine.poll_one(each=True)
    connection = client.connection()
    with pytest.raises(LeaseLost):
        other.finalize(event.id, connection=connection)
    mine.finalize(event.id, connection=connection)
    client.call(connection.commit)
    assert mine.event(event.id).status == "COMPLETED"


def test_an_event_is_published_whole(queue: Any) -> None:
    event = NewEvent("a", {"n": 1}, tags=["x"], priority=2, key="k", headers={"h": 1})
    told = queue.event(queue.publish(event).id)
    assert (told.type, told.payload, told.tags) == ("a", {"n": 1}, ("x",))
    assert (told.priority, told.key, told.headers) == (2, "k", {"h": 1})
    for beside in ({"payload": 1}, {"priority": 1}, {"headers": {}}):
        with pytest.raises(InvalidInput, match=f"and {next(iter(beside))}: set all fields"):
            queue.publish(event, **beside)
    assert queue.events().total == 1
