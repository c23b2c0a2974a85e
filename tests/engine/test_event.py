"""event, and the view event_queue: where a delivery stands."""

from datetime import timedelta
from typing import Any

import pytest

from tests.database import Database
from tests.engine.functions_helpers import Engine, refused, stop_the_clock
from tests.requirements import requirement

AT_ONCE = {"kind": "fixed", "delay": 0}


@pytest.fixture
def engine(db: Database) -> Engine:
    stop_the_clock(db)
    return Engine(db)


def in_queue(engine: Engine, id: int) -> list[Any]:
    """The event's rows in event_queue."""
    return engine.connection.execute(
        "select * from headrace.event_queue where id = %s", [id]
    ).fetchall()


# What event and event_queue both show. Who worked on it last is told by event alone.
SHARED = (
    *("id", "type", "tags", "payload", "details", "priority", "status", "attempts", "retry_count"),
    *("crashes", "max_retries", "next_retry_at", "lease_expires_at", "created_at", "updated_at"),
)


def check_both(engine: Engine, id: int, **expected: Any) -> None:
    """event says what is expected, and event_queue the same."""
    event = engine.event(id)
    assert {name: getattr(event, name) for name in expected} == expected
    [row] = in_queue(engine, id)
    assert {name: getattr(row, name) for name in SHARED} == {
        name: getattr(event, name) for name in SHARED
    }
    assert (row.namespace, row.queue) == (engine.namespace, "main")
    if event.status == "PROCESSING":
        assert (row.worker_id, row.processing_started_at) == (
            event.worker_id,
            event.processing_started_at,
        )
    else:
        assert (row.worker_id, row.processing_started_at) == (None, None)


@requirement("EQ-2", "EQ-6", "EB-5", "EQ-10", "EB-8", "EQ-4", "EB-3")
@pytest.mark.parametrize("each", [False, True])
def test_an_event_is_told_through_its_whole_life(engine: Engine, db: Database, each: bool) -> None:
    [id] = engine.publish(
        {
            "type": "order",
            "payload": {"a": [1]},
            "tags": ["y", "x"],
            "priority": 3,
            "delay": 10,
            "title": "T",
        }
    )
    start = engine.now()

    def at(seconds: float) -> Any:
        return start + timedelta(seconds=seconds)

    check_both(
        engine,
        id,
        type="order",
        payload={"a": [1]},
        tags=["y", "x"],
        priority=3,
        details={"title": "T"},
        status="PENDING",
        attempts=0,
        retry_count=0,
        crashes=0,
        max_retries=3,
        next_retry_at=at(10),
        worker_id=None,
        processing_started_at=None,
        lease_expires_at=None,
        created_at=start,
        updated_at=start,
    )
    db.advance(seconds=10)
    engine.tick()
    check_both(engine, id, status="PENDING", next_retry_at=None, updated_at=start)
    db.advance(seconds=10)
    claim = engine.claim(each=each, worker="w1")
    check_both(
        engine,
        id,
        status="PROCESSING",
        attempts=1,
        worker_id="w1",
        processing_started_at=at(20),
        lease_expires_at=at(80),
        updated_at=at(20),
    )
    db.advance(seconds=10)
    engine.end("fail", claim)
    check_both(
        engine,
        id,
        status="PENDING",
        attempts=1,
        retry_count=1,
        next_retry_at=at(330),
        worker_id="w1",
        lease_expires_at=None,
        updated_at=at(30),
    )
    db.advance(seconds=300)
    engine.tick()
    check_both(engine, id, status="PENDING", next_retry_at=None, updated_at=at(30))
    db.advance(seconds=10)
    engine.claim(each=each, worker="w2")
    check_both(engine, id, status="PROCESSING", attempts=2, worker_id="w2", updated_at=at(340))
    db.advance(seconds=100)
    engine.tick()
    check_both(
        engine,
        id,
        status="PENDING",
        attempts=2,
        retry_count=1,
        crashes=0,
        next_retry_at=None,
        updated_at=at(440),
    )
    db.advance(seconds=10)
    claim = engine.claim(each=each, worker="w3")
    check_both(engine, id, status="PROCESSING", attempts=3, crashes=0)
    db.advance(seconds=10)
    engine.end("release", claim)
    check_both(engine, id, status="PENDING", attempts=3, next_retry_at=None, updated_at=at(460))
    claim = engine.claim(each=each, worker="w4")
    db.advance(seconds=10)
    engine.end("complete", claim)

    event = engine.event(id)
    assert in_queue(engine, id) == []
    assert (event.status, event.attempts, event.retry_count) == ("COMPLETED", 4, 1)
    assert (event.worker_id, event.processing_started_at) == ("w4", at(460))
    assert (event.updated_at, event.lease_expires_at) == (at(470), None)
    assert event.payload == {"a": [1]}


@requirement("EQ-4", "EB-3")
def test_an_end_leaves_the_queue_and_is_told_with_its_status(engine: Engine) -> None:
    for end, arguments, status in (
        ("complete", {}, "COMPLETED"),
        ("finalize", {"errors": ["x"]}, "COMPLETED_WITH_ERRORS"),
        ("finalize", {"success": False}, "FAILED"),
    ):
        [id] = engine.publish({})
        engine.end(end, engine.claim(), **arguments)
        assert engine.event(id).status == status
        assert in_queue(engine, id) == []


@pytest.mark.parametrize("each", [False, True])
def test_the_members_of_a_batch_are_told_apart(engine: Engine, each: bool) -> None:
    ids = engine.publish(*({"payload": n} for n in range(5)))
    claims = engine.poll(max_events=5, each=each)
    engine.finish([claims[1], claims[3]])
    assert [engine.event(id).status for id in ids] == [
        "PROCESSING", "COMPLETED", "PROCESSING", "COMPLETED", "PROCESSING"
    ]  # fmt: skip
    assert [len(in_queue(engine, id)) for id in ids] == [1, 0, 1, 0, 1]
    assert [engine.event(id).payload for id in ids] == [0, 1, 2, 3, 4]


def test_a_dead_letter_is_told_although_its_event_is_gone(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"type": "order", "payload": 7, "tags": ["x"], "max_retries": 0})
    engine.end("fail", engine.claim(worker="w"))
    whole = engine.event(id)
    assert (whole.status, whole.retry_count, whole.crashes) == ("FAILED", 1, 0)
    db.sql("delete from headrace.events")
    assert engine.event(id) == whole


def test_an_event_whose_body_was_carried_over_is_told(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"payload": 7, "max_retries": 9})
    db.sql("""with gone as (delete from headrace.events returning *)
              insert into headrace.events_carried select * from gone""")
    check_both(engine, id, status="PENDING", payload=7, max_retries=9)
    engine.claim()
    check_both(engine, id, status="PROCESSING", attempts=1)


def test_the_retries_of_the_queue_are_told_where_the_event_has_none(
    engine: Engine, db: Database
) -> None:
    [queues, own] = engine.publish({}, {"max_retries": 0})
    db.sql("update headrace.queues set max_retries = 8")
    check_both(engine, queues, max_retries=8)
    check_both(engine, own, max_retries=0)


def test_once_it_has_failed_the_retries_are_told_that_its_handler_allows(
    engine: Engine, db: Database
) -> None:
    policy = {"max_retries": 2, "backoff": AT_ONCE}
    [id] = engine.publish({})
    for _ in range(2):
        [claim] = engine.poll(each=True)
        others = {"1": {"action": "fail", "error": "no", **policy}}
        engine.finish([claim], others=others)
        if claim.attempt == 1:
            check_both(engine, id, status="PENDING", retry_count=1, max_retries=2)
    assert (engine.event(id).status, engine.event(id).max_retries) == ("FAILED", 2)
    [letter] = engine.call("dead_letter", namespace="default", event_id=id)
    [listed] = engine.call("dead_letters", namespace="default")
    assert letter.max_retries == listed.max_retries == 2
    [delivery] = engine.call("deliveries", namespace="default", event_id=id)
    assert delivery.max_retries == 2
    # Redriven it has not failed yet, and nobody knows who will handle it.
    engine.call("redrive", namespace="default")
    check_both(engine, id, retry_count=0, max_retries=3)


def test_event_queue_shows_what_lives_and_nothing_else(engine: Engine, db: Database) -> None:
    done, delayed, held, batched, dead = engine.publish(
        {"type": "done"},
        {"type": "delayed", "delay": 5},
        {"type": "held"},
        {"type": "batched"},
        {"type": "dead", "max_retries": 0},
    )
    [ready] = engine.publish({"type": "ready"})
    engine.end("complete", engine.claim(types=["done"]))
    engine.end("fail", engine.claim(types=["dead"]))
    engine.claim(types=["held"], each=True)
    engine.claim(types=["batched"])

    rows = db.sql("select id, status from headrace.event_queue order by id")
    assert rows == [
        (delayed, "PENDING"),
        (held, "PROCESSING"),
        (batched, "PROCESSING"),
        (ready, "PENDING"),
    ]
    assert [engine.event(id).status for id in (done, dead)] == ["COMPLETED", "FAILED"]


def test_an_event_that_is_not_there_is_refused(engine: Engine) -> None:
    [id] = engine.publish({})
    for wrong in (id + 1, 0, -1, 2**63 - 1, -(2**63), None):
        with refused("QU012", "there is no event"):
            engine.event(wrong)
    with refused("QU010"):
        Engine(engine.db, "nowhere").event(id)
    with refused("QU011"):
        engine.call("event", namespace="default", event_id=id, queue="other")
