"""What the samples of the documents 000 and 001 do: the same calls in the same order, with the same names and values."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace import Claimed, EventQueue, InvalidInput, LeaseLost, NewEvent
from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.requirements import requirement


@pytest.fixture
def queue(db: Database) -> EventQueue:
    return db.queue(worker="pod-1:17")


def log(db: Database, event_id: int) -> list[str]:
    query = "select action from headrace.event_log where event_id = %s order by id"
    return [action for (action,) in db.sql(query, [event_id])]


def stored(db: Database, event_id: int) -> list[tuple[Any, ...]]:
    return db.sql("select status, attempts from headrace.event_queue where id = %s", [event_id])


# --- 000


@requirement("EQ-6", "EQ-7", "EQ-11", "EQ-14")
def test_000_success(db: Database, queue: EventQueue) -> None:
    queued = queue.publish(NewEvent("user.created", {"user": 1}))
    assert (queued.status, queued.attempts) == ("PENDING", 0)
    assert stored(db, queued.id) == [("PENDING", 0)]

    event = queue.poll_one()

    assert event is not None
    assert (event.id, event.status, event.attempts) == (queued.id, "PROCESSING", 1)
    assert stored(db, queued.id) == [("PROCESSING", 1)]
    assert db.sql("select updated_at from headrace.event_queue") == [(event.updated_at,)]
    queue.finalize(event.id, errorResults=[])
    assert log(db, queued.id) == ["EMITTED", "PICKED", "COMPLETED"]
    assert stored(db, queued.id) == []
    assert queue.poll_one() is None


@requirement("EQ-11", "EQ-14")
def test_000_failure(db: Database, queue: EventQueue) -> None:
    queued = queue.publish(NewEvent("user.created", {"user": 1}))
    event = queue.poll_one()
    assert event is not None

    queue.finalize(event.id, errorResults=[ValueError("no such user")])

    assert log(db, queued.id)[:3] == ["EMITTED", "PICKED", "COMPLETED_WITH_ERRORS"]
    assert stored(db, queued.id) == []
    [letter] = queue.dead_letters()
    assert "no such user" in (letter.error or "")
    assert queue.poll_one() is None


@requirement("EQ-5", "EQ-8", "EQ-10", "EQ-15")
def test_000_a_process_dies(db: Database, queue: EventQueue) -> None:
    stop_the_clock(db)
    queued = queue.publish(NewEvent("user.created"))
    lost = queue.poll_one()
    assert lost is not None
    other = db.queue(worker="pod-2:4")
    db.advance(minutes=1)
    assert other.poll_one() is None, "updated_at is not yet older than a minute"
    db.advance(seconds=1)

    event = other.poll_one()

    assert event is not None
    assert (event.id, event.attempts) == (queued.id, 2)
    assert (event.updated_at - lost.updated_at).total_seconds() == 61
    other.finalize(event.id)
    assert log(db, queued.id) == ["EMITTED", "PICKED", "ABANDONED", "PICKED", "COMPLETED"]


@requirement("EQ-12")
def test_000_already_finalized_does_nothing_whoever_says_it(
    db: Database, queue: EventQueue
) -> None:
    queued = queue.publish(NewEvent("user.created"))
    event = queue.poll_one()
    assert event is not None
    first = queue.finalize(event.id)
    before = log(db, queued.id)

    strangers = [db.queue(worker="pod-2:4"), db.queue(worker="pod-1:17"), queue]
    for somebody in strangers:
        for errors in ([], ["no such user"]):
            again = somebody.finalize(queued.id, errors)
            assert (again.verdict, again.action) == ("repeated", "COMPLETED")
    assert first.action == "COMPLETED"
    assert queue.finalize(event, ["no such user"]).action == "COMPLETED"
    assert log(db, queued.id) == before


def test_000_not_finalized_and_not_held_is_told(db: Database, queue: EventQueue) -> None:
    queued = queue.publish(NewEvent("user.created"))
    other = db.queue(worker="pod-2:4")
    for id in (queued.id, queued.id + 1000, 2**63, 0):  # it waits; there is none
        with pytest.raises(LeaseLost) as raised:
            other.finalize(id)
        assert raised.value.ids == (id,)
    event = queue.poll_one()
    assert event is not None
    with pytest.raises(LeaseLost, match="not finalized, and this client does not hold it"):
        other.finalize(event.id)
    assert stored(db, event.id) == [("PROCESSING", 1)]


@requirement("EQ-18")
def test_000_poison_is_shunted_to_completed_with_errors(db: Database, queue: EventQueue) -> None:
    queued = queue.publish(NewEvent("poison", max_retries=2))
    starts = 0
    while queue.poll_one(dispatch="collect"):  # each of these managers dies at once
        starts += 1
        db.advance(seconds=61)
    assert starts == 3
    assert queue.event(queued.id).status == "COMPLETED_WITH_ERRORS"
    assert log(db, queued.id)[-3:] == ["ABANDONED", "COMPLETED_WITH_ERRORS", "DEAD_LETTERED"]
    queue.purge("dead_letters")
    assert queue.event(queued.id).status == "COMPLETED_WITH_ERRORS"


# --- 001


class CancelledException(Exception):
    """As the sample's: it is thrown on, and nothing is finalized."""


def work(bus: EventQueue, route: Callable[[Claimed], None], idle: Callable[[], bool]) -> None:
    """The document's worker loop. `idle` stands for the delay of 10 seconds, and says whether to go on."""
    while True:
        ev = bus.poll_one(lease=300)
        if ev is None:
            if not idle():
                return
            continue
        try:
            route(ev)
            bus.finalize(ev.id, success=True)
        except CancelledException:
            raise
        except Exception:
            bus.finalize(ev.id, success=False)


@requirement("EB-9", "EB-10", "EB-12")
def test_001_the_worker_loop(db: Database, queue: EventQueue) -> None:
    paid = queue.publish(NewEvent("order.paid", {"order": 1}))
    broken = queue.publish(NewEvent("order.paid", {"order": None}))
    routed = []

    def route(ev: Claimed) -> None:
        routed.append((ev.id, ev.status, ev.attempts))
        if ev.payload["order"] is None:
            raise ValueError("no such order")

    naps = iter([True, False])
    work(queue, route, lambda: next(naps))

    assert routed == [(paid.id, "PROCESSING", 1), (broken.id, "PROCESSING", 1)]
    assert log(db, paid.id) == ["EMITTED", "PICKED", "COMPLETED"]
    assert log(db, broken.id)[:3] == ["EMITTED", "PICKED", "FAILED"]
    assert db.sql("select from headrace.event_queue") == []


@requirement("EB-7", "EB-11")
def test_001_a_cancelled_worker_leaves_its_event_to_another(
    db: Database, queue: EventQueue
) -> None:
    stop_the_clock(db)
    event = queue.publish(NewEvent("order.paid"))

    def cancelled(ev: Claimed) -> None:
        raise CancelledException

    with pytest.raises(CancelledException):
        work(queue, cancelled, lambda: False)
    second = db.queue(worker="w2")
    routed: list[int] = []
    work(second, lambda ev: routed.append(ev.attempts), lambda: False)
    assert routed == [], "five minutes are not over"
    db.advance(minutes=5, seconds=1)
    work(second, lambda ev: routed.append(ev.attempts), lambda: False)
    assert routed == [2]
    assert log(db, event.id) == ["EMITTED", "PICKED", "ABANDONED", "PICKED", "COMPLETED"]


@requirement("EB-9")
@pytest.mark.parametrize(("success", "status"), [(True, "COMPLETED"), (False, "FAILED")])
def test_001_finalize_takes_success_by_its_place(
    db: Database, queue: EventQueue, success: bool, status: str
) -> None:
    event = queue.publish(NewEvent("order.paid"))
    ev = queue.poll_one()
    assert ev is not None
    assert queue.finalize(ev.id, success).action == status
    assert queue.event(event.id).status == status


@requirement("EB-14")
def test_001_poison_is_shunted_to_failed(db: Database, queue: EventQueue) -> None:
    event = queue.publish(NewEvent("poison", max_retries=2))
    while queue.poll_one(lease=300):
        db.advance(minutes=5, seconds=1)
    assert log(db, event.id)[-3:] == ["ABANDONED", "FAILED", "DEAD_LETTERED"]
    reason = (
        "select error_message from headrace.event_log where event_id = %s and action = 'FAILED'"
    )
    assert db.sql(reason, [event.id]) == [("Its workers crashed or lost their leases",)]


# --- what is said twice or beside


def test_a_new_event_has_all_that_is_said_of_it(queue: EventQueue) -> None:
    event = NewEvent("user.created", {"user": 1}, tags=["a"], priority=1, title="A user")
    told = queue.publish(event)
    assert (told.type, told.tags, told.priority, told.title) == (
        "user.created",
        ("a",),
        1,
        "A user",
    )
    for beside in ({"payload": {}}, {"priority": 2}, {"tags": []}, {"headers": {}, "key": "k"}):
        with pytest.raises(InvalidInput, match=f"a NewEvent and .*{next(iter(beside))}"):
            queue.publish(event, **beside)  # type: ignore[arg-type]
    assert queue.publish(event, enforce=True).id > told.id
    assert queue.events().total == 2


def test_finalize_takes_one_word_for_one_thing(queue: EventQueue) -> None:
    queue.publish("a")
    ev = queue.poll_one()
    assert ev is not None
    with pytest.raises(InvalidInput, match="success twice"):
        queue.finalize(ev.id, True, success=True)
    with pytest.raises(InvalidInput, match="two names for the same"):
        queue.finalize(ev.id, ["x"], errorResults=["y"])
    assert queue.finalize(ev.id, success=False, errorResults=["y"]).action == "FAILED"
