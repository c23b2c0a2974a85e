"""The EventBus document (001), its life cycles told in its own order.

Its timeout is five minutes and a failure is an end: lease=300 and max_retries=0.
"""

from datetime import timedelta

import pytest

from headrace import EventQueue, LeaseLost
from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.requirements import requirement

FIVE_MINUTES = timedelta(minutes=5)


@pytest.fixture
def bus(db: Database) -> EventQueue:
    return db.queue(worker="worker:1")


def in_work(db: Database, event_id: int) -> tuple[object, ...] | None:
    found = db.sql(
        "select status, attempts, processing_started_at from headrace.event_queue where id = %s",
        [event_id],
    )
    return found[0] if found else None


def last_status(db: Database, event_id: int) -> str:
    query = (
        "select action from headrace.event_log where event_id = %s and action <> 'DEAD_LETTERED'"
        " order by id desc limit 1"
    )
    return str(db.sql(query, [event_id])[0][0])


@requirement("EB-1", "EB-5")
def test_a_published_event_is_in_events_and_pending(db: Database, bus: EventQueue) -> None:
    event = bus.publish("order.paid", {"order": 1}, max_retries=0)
    assert db.sql("select type, payload from headrace.events where id = %s", [event.id]) == [
        ("order.paid", {"order": 1})
    ]
    assert in_work(db, event.id) == ("PENDING", 0, None)


@requirement("EB-2", "EB-6", "EB-8")
def test_poll_acquires_one_event_and_notes_when_its_processing_started(
    db: Database, bus: EventQueue
) -> None:
    assert bus.poll(lease=FIVE_MINUTES) == []
    event = bus.publish("order.paid", max_retries=0)
    before = db.sql("select headrace._now()")[0][0]

    [claimed] = bus.poll(lease=FIVE_MINUTES)

    state = in_work(db, event.id)
    assert state is not None
    assert state[:2] == ("PROCESSING", 1)
    assert before <= state[2] <= db.sql("select headrace._now()")[0][0]
    assert claimed.id == event.id
    assert bus.poll(lease=FIVE_MINUTES) == [], "it has an owner"


@requirement("EB-3", "EB-9")
@pytest.mark.parametrize(("success", "status"), [(True, "COMPLETED"), (False, "FAILED")])
def test_finalize_moves_the_event_to_the_log(
    db: Database, bus: EventQueue, success: bool, status: str
) -> None:
    event = bus.publish("order.paid", max_retries=0)
    [claimed] = bus.poll(lease=FIVE_MINUTES)

    bus.finalize(claimed.id, success=success)

    assert in_work(db, event.id) is None
    assert last_status(db, event.id) == status
    assert bus.event(event.id).status == status
    db.advance(days=1)
    assert bus.poll(lease=FIVE_MINUTES) == []


@requirement("EB-4", "EB-7", "EB-8", "EB-11")
def test_another_worker_gets_a_dead_pods_event_after_five_minutes(
    db: Database, bus: EventQueue
) -> None:
    stop_the_clock(db)
    event = bus.publish("order.paid")
    [lost] = bus.poll(lease=FIVE_MINUTES)
    second = db.queue(worker="worker:2")

    db.advance(minutes=4, seconds=58)
    assert second.poll(lease=FIVE_MINUTES) == []
    db.advance(seconds=3)
    before = db.sql("select headrace._now()")[0][0]
    [claimed] = second.poll(lease=FIVE_MINUTES)

    state = in_work(db, event.id)
    assert state is not None
    assert state[:2] == ("PROCESSING", 2)
    assert state[2] >= before
    second.finalize(claimed.id, success=True)
    assert last_status(db, event.id) == "COMPLETED"
    with pytest.raises(LeaseLost):
        bus.complete(lost)


@requirement("EB-14")
def test_an_event_that_kills_every_worker_ends_as_failed(db: Database, bus: EventQueue) -> None:
    event = bus.publish("poison", max_retries=2)
    starts = 0
    while bus.poll(lease=FIVE_MINUTES):  # each of these workers dies at once
        starts += 1
        db.advance(minutes=6)
    assert starts <= 3
    assert bus.event(event.id).status == "FAILED"
    assert in_work(db, event.id) is None
    assert last_status(db, event.id) == "FAILED"
    assert [(one.status, one.crashes) for one in bus.dead_letters()] == [("FAILED", 2)]


@requirement("EB-15")
def test_composite_indexes_stand_for_the_one_the_document_forgot(db: Database) -> None:
    """(status, processing_started_at, id): waiting is one table, in work another, each in its order."""
    indexes = [definition for (definition,) in db.sql("select indexdef from pg_indexes")]
    assert any(
        "headrace.ready " in i and "queue, suspect, priority, route, seq" in i for i in indexes
    )
    assert any("headrace.leases " in i and "(until)" in i for i in indexes)
    assert any("headrace.delayed " in i and "(due_at)" in i for i in indexes)
