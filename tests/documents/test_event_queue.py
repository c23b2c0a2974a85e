"""The EventQueue document (000), its life cycles told in its own order.

The document's literal path has no retries: a failure is an end, so its events have max_retries=0.
"""

from datetime import timedelta

import pytest

import headrace
from headrace import EventQueue
from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.requirements import requirement


@pytest.fixture
def queue(db: Database) -> EventQueue:
    return db.queue(worker="pod-1:17")


def row(db: Database, event_id: int) -> dict[str, object] | None:
    """The event's row in event_queue, if it is still there."""
    columns = "status, attempts, updated_at, worker_id"
    found = db.sql(f"select {columns} from headrace.event_queue where id = %s", [event_id])
    return dict(zip(columns.split(", "), found[0], strict=True)) if found else None


def statuses(db: Database, event_id: int) -> list[str]:
    """What event_log has on an event, in order."""
    query = "select action from headrace.event_log where event_id = %s order by id"
    return [action for (action,) in db.sql(query, [event_id])]


@requirement("EQ-2", "EQ-6", "EQ-20")
def test_publish_inserts_a_pending_event_and_returns_it(db: Database, queue: EventQueue) -> None:
    event = queue.publish("user.created", {"user": 1}, max_retries=0)

    assert isinstance(event.id, int)
    assert (event.status, event.attempts) == ("PENDING", 0)
    stored = row(db, event.id)
    assert stored is not None
    assert (stored["status"], stored["attempts"]) == ("PENDING", 0)
    assert db.sql(
        "select data_type from information_schema.columns"
        " where table_schema = 'headrace' and table_name = 'events' and column_name = 'id'"
    ) == [("bigint",)]


@requirement("EQ-7")
def test_poll_does_not_wait_and_gives_nothing_when_there_is_nothing(queue: EventQueue) -> None:
    assert queue.poll() == []


@requirement("EQ-7", "EQ-10")
def test_poll_marks_the_event_processing_and_counts_the_attempt(
    db: Database, queue: EventQueue
) -> None:
    event = queue.publish("user.created", max_retries=0)
    before = db.sql("select headrace._now()")[0][0]

    [claimed] = queue.poll()

    after = db.sql("select headrace._now()")[0][0]
    assert (claimed.id, claimed.attempt) == (event.id, 1)
    stored = row(db, event.id)
    assert stored is not None
    assert (stored["status"], stored["attempts"]) == ("PROCESSING", 1)
    assert before <= stored["updated_at"] <= after
    assert stored["worker_id"] == "pod-1:17"


@requirement("EQ-3", "EQ-9")
def test_a_row_that_another_process_is_acquiring_is_skipped_not_waited_for(db: Database) -> None:
    one, other = db.connect(), db.connect()
    published = db.queue().publish_many([("a", 1), ("a", 2)])
    with one.transaction():
        mine = one.execute("select id from headrace.poll('default')").fetchall()
        yours = other.execute("select id from headrace.poll('default')").fetchall()
    assert sorted(mine + yours) == [(event,) for event in published]


@requirement("EQ-4", "EQ-11", "EQ-14")
def test_success_is_logged_as_completed_and_removes_the_event(
    db: Database, queue: EventQueue
) -> None:
    event = queue.publish("user.created", max_retries=0)
    [claimed] = queue.poll()

    queue.finalize(claimed.id, errors=[])

    assert row(db, event.id) is None
    assert statuses(db, event.id) == ["EMITTED", "PICKED", "COMPLETED"]
    assert queue.event(event.id).status == "COMPLETED"
    assert queue.poll() == []


@requirement("EQ-4", "EQ-11", "EQ-14")
def test_failure_is_logged_as_completed_with_errors_and_removes_the_event(
    db: Database, queue: EventQueue
) -> None:
    event = queue.publish("user.created", max_retries=0)
    [claimed] = queue.poll()

    queue.finalize(claimed.id, errors=["no such user", ValueError("and no such mail")])

    assert row(db, event.id) is None
    assert statuses(db, event.id)[:3] == ["EMITTED", "PICKED", "COMPLETED_WITH_ERRORS"]
    assert queue.event(event.id).status == "COMPLETED_WITH_ERRORS"
    [message] = [entry.error_message for entry in queue.log(event.id) if entry.error_message]
    assert "no such user" in message
    assert "and no such mail" in message
    db.advance(days=1)
    assert queue.poll() == [], "a failing handler does not cause a retry"


@requirement("EQ-12")
def test_finalizing_again_does_nothing(db: Database, queue: EventQueue) -> None:
    event = queue.publish("user.created", max_retries=0)
    [claimed] = queue.poll()
    queue.finalize(claimed.id)
    logged = statuses(db, event.id)

    queue.finalize(claimed.id)
    queue.finalize(claimed)

    assert statuses(db, event.id) == logged


@requirement("EQ-1", "EQ-5", "EQ-8", "EQ-15")
def test_an_event_whose_process_died_is_acquired_again_after_the_timeout(
    db: Database, queue: EventQueue
) -> None:
    stop_the_clock(db)
    event = queue.publish("user.created")
    [lost] = queue.poll()  # and the process dies here
    other = db.queue(worker="pod-2:4")

    db.advance(seconds=59)
    assert other.poll() == []
    db.advance(seconds=1.5)
    before = db.sql("select headrace._now()")[0][0]
    [claimed] = other.poll()

    assert (claimed.id, claimed.attempt) == (event.id, 2)
    stored = row(db, event.id)
    assert stored is not None
    assert (stored["status"], stored["attempts"]) == ("PROCESSING", 2)
    assert stored["updated_at"] >= before
    other.finalize(claimed.id)
    assert queue.event(event.id).status == "COMPLETED"
    with pytest.raises(headrace.LeaseLost):
        queue.complete(lost)
    assert statuses(db, event.id) == ["EMITTED", "PICKED", "ABANDONED", "PICKED", "COMPLETED"]


@requirement("EQ-8")
def test_exactly_at_the_timeout_the_event_is_not_yet_abandoned(db: Database) -> None:
    """`updated_at < now - timeout` is strict: at the very moment it still belongs to its worker."""
    db.sql(
        "create or replace function headrace._now() returns timestamptz language sql stable"
        " as $$ select timestamptz '2030-01-01 12:00+00' + (select shift from headrace_test.clock) $$"
    )
    db.sql("select headrace.publish('default', '{\"type\": \"a\"}')")
    assert len(db.sql("select * from headrace.poll('default', lease => '1 minute')")) == 1
    db.advance(minutes=1)
    assert db.sql("select * from headrace.poll('default')") == []
    db.advance(microseconds=1)
    assert len(db.sql("select * from headrace.poll('default')")) == 1


@requirement("EQ-16")
def test_the_timeout_is_a_minute_unless_the_code_says_otherwise(
    db: Database, queue: EventQueue
) -> None:
    queue.publish_many([("a", 1), ("a", 2)])
    [usual] = queue.poll()
    [longer] = queue.poll(lease=timedelta(minutes=10))
    started = dict(db.sql("select id, processing_started_at from headrace.event_queue"))
    assert usual.lease_expires_at - started[usual.id] == timedelta(minutes=1)
    assert longer.lease_expires_at - started[longer.id] == timedelta(minutes=10)


@requirement("EQ-17", "EB-13")
def test_depth_attempts_latency_and_failure_rate_can_be_watched(
    db: Database, queue: EventQueue
) -> None:
    queue.publish_many([("a", number) for number in range(5)])
    good, bad = queue.poll(max_events=2)
    queue.complete(good, execution_time_ms=30)
    queue.fail(bad, "no", execution_time_ms=50)

    stats = queue.stats()

    assert (stats.ready, stats.delayed, stats.processing) == (3, 1, 0)
    assert (stats.published, stats.completed, stats.failed) == (5, 1, 1)
    assert (stats.attempts, stats.average_ms) == (2, 40)
    queue.tick()
    assert queue.stats() == stats, "the same after the counts were folded"


@requirement("EQ-18")
def test_an_event_that_fails_every_time_ends_as_completed_with_errors(
    db: Database, queue: EventQueue
) -> None:
    event = queue.publish("poison", max_retries=3)
    for _ in range(3):
        [claimed] = queue.poll()
        queue.finish([headrace.Failed(claimed, "no", retry_in=0, status="COMPLETED_WITH_ERRORS")])
    assert queue.poll() == []
    assert queue.event(event.id).status == "COMPLETED_WITH_ERRORS"
    assert statuses(db, event.id)[-2:] == ["COMPLETED_WITH_ERRORS", "DEAD_LETTERED"]


@requirement("EQ-19", "EB-16")
def test_the_queue_is_one_class_that_whoever_registers_handlers_can_stand_on() -> None:
    assert {"publish", "poll", "finalize"} <= set(dir(headrace.EventQueue))
    assert {"publish", "poll", "finalize"} <= set(dir(headrace.AsyncEventQueue))
