"""What administrators do through both clients."""

from typing import Any

import pytest

from headrace import AlreadyEnded, Busy, EventNotFound, InvalidInput, LeaseLost
from tests.client.clients import Client
from tests.database import Database
from tests.requirements import requirement


@requirement("G6", "G7")
def test_cancel_ends_what_waits_and_what_is_in_work(queue: Any) -> None:
    waiting, working = queue.publish("a", delay=60), queue.publish("b")
    (claimed,) = queue.poll()
    for event in (waiting, working):
        assert queue.cancel(event.id, reason="not wanted").status == "CANCELLED"
        assert queue.cancel(event.id).status == "CANCELLED"
    with pytest.raises(LeaseLost):
        queue.complete(claimed)
    entry = queue.log(working.id)[-1]
    assert (entry.action, entry.error_message) == ("CANCELLED", "not wanted")


@requirement("API-21")
def test_reset_makes_an_event_ready_now(queue: Any) -> None:
    event = queue.publish("a")
    (claimed,) = queue.poll()
    reset = queue.reset(event.id, reason="worker_timeout")
    assert (reset.status, reset.attempts) == ("PENDING", 1)
    with pytest.raises(LeaseLost):
        queue.complete(claimed)
    (again,) = queue.poll()
    queue.complete(again)
    with pytest.raises(AlreadyEnded, match=f"event {event.id} has already ended as COMPLETED"):
        queue.reset(event.id)
    actions = [entry.action for entry in queue.log(event.id)]
    assert actions == ["EMITTED", "PICKED", "RESET", "PICKED", "COMPLETED"]


def test_the_log_names_the_client_unless_somebody_is_named(client: Client) -> None:
    queue = client.queue(worker="console:1")
    for actor, logged in ((None, "console:1"), ("bob", "bob")):
        event = queue.publish("a")
        queue.cancel(event.id, actor=actor)
        assert queue.log(event.id)[-1].worker_id == logged


def test_an_event_that_is_being_finished_is_busy(client: Client, db: Database) -> None:
    queue = client.queue()
    event = queue.publish("a")
    (claimed,) = queue.poll(each=True)
    with db.connect(autocommit=False) as handler:
        handler.execute("select headrace.complete('default', %s, 1)", [claimed.id])
        for change in (queue.cancel, queue.reset):
            with pytest.raises(Busy, match=f"event {event.id} is being"):
                change(event.id)
        handler.rollback()
    assert queue.cancel(event.id).status == "CANCELLED"


@pytest.mark.parametrize("id", [0, -1, 1, 2**63 - 1, 2**63, 10**30])
def test_an_event_that_is_not_there_is_not_found(queue: Any, id: int) -> None:
    for change in (queue.cancel, queue.reset):
        with pytest.raises(EventNotFound, match=f"no event {id} in the namespace 'default'"):
            change(id)
        with pytest.raises(InvalidInput, match="whole number"):
            change("1")
