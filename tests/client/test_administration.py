"""What administrators do through both clients."""

from datetime import timedelta
from typing import Any

import pytest

from headrace import (
    AlreadyEnded,
    Busy,
    EventNotFound,
    Failed,
    InvalidInput,
    LeaseLost,
    NamespaceNotEmpty,
    NamespaceNotFound,
)
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


@pytest.mark.one_database("the test works on its tables")
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


def bury(queue: Any, count: int, type: str = "a") -> list[int]:
    ids = queue.publish_many([(type, {})] * count)
    while claimed := queue.poll(max_events=1000):
        queue.finish([Failed(one, "no", reason="no use") for one in claimed])
    return ids


class TestRedrive:
    @requirement("G7")
    def test_dead_letters_are_ready_again(self, queue: Any) -> None:
        ids = bury(queue, 3)
        assert queue.redrive(reason="fixed") == 3
        assert queue.redrive() == 0
        assert [claimed.id for claimed in queue.poll(max_events=9)] == ids
        entry = next(entry for entry in queue.log(ids[0]) if entry.action == "REDRIVEN")
        assert entry.error_message == "fixed"

    def test_only_those_that_are_named(self, queue: Any) -> None:
        a, b = bury(queue, 3, "a"), bury(queue, 3, "b")
        assert queue.redrive(a[:2] + b[:1], types=["b"]) == 1
        assert queue.redrive(iter([a[0], 0, -1, 10**30])) == 1
        assert queue.redrive([]) == 0
        assert queue.stats().dead_letters == 4

    def test_only_those_with_one_kind_of_error(self, queue: Any) -> None:
        bury(queue, 3)
        (group,) = queue.dead_letter_groups()
        assert queue.redrive(fingerprint="another") == 0
        assert (
            queue.purge("dead_letters", list(group.sample_ids[:1]), fingerprint=group.fingerprint)
            == 1
        )
        assert queue.redrive(fingerprint=group.fingerprint) == 2

    def test_more_than_a_step_of_them(self, queue: Any) -> None:
        ids, told = bury(queue, 2500), []
        assert queue.redrive(progress=told.append) == 2500
        assert told == [1000, 2000, 2500]
        bury(queue, 0)
        assert queue.redrive(ids) == 2500

    @pytest.mark.one_database("the test works on its tables")
    def test_at_a_rate(self, queue: Any, db: Database) -> None:
        bury(queue, 1500)
        assert queue.redrive(rate=100) == 1500
        ((first, last),) = db.sql("select min(due_at), max(due_at) from headrace.delayed")
        # The first is ready at once, and those whose time came while the others were redriven.
        assert last - first <= timedelta(seconds=14.99)
        db.advance(seconds=15)
        queue.tick()
        assert queue.stats().ready == 1500

    def test_a_rate_that_is_none_is_refused(self, queue: Any) -> None:
        for rate in (0, -1, float("nan")):
            with pytest.raises(InvalidInput, match="a rate is"):
                queue.redrive(rate=rate)


class TestPurge:
    def test_what_waits_is_cancelled_and_dead_letters_are_removed(self, queue: Any) -> None:
        dead = bury(queue, 3)
        ready, later = queue.publish("a"), queue.publish("a", delay=60)
        assert queue.purge("ready", reason="obsolete") == 1
        assert queue.purge("delayed") == 1
        assert queue.purge("dead_letters", dead[:1]) == 1
        assert queue.purge("dead_letters", types=["b"]) == 0
        assert queue.purge("dead_letters") == 2
        assert [queue.event(event.id).status for event in (ready, later)] == ["CANCELLED"] * 2
        assert queue.event(dead[0]).status == "FAILED"

    def test_more_than_a_step_of_them(self, queue: Any) -> None:
        queue.publish_many([("a", {})] * 2500)
        told: list[int] = []
        assert queue.purge("ready", progress=told.append) == 2500
        assert told[-1] == 2500
        assert queue.poll() == []

    def test_what_is_no_place_is_refused(self, queue: Any) -> None:
        with pytest.raises(InvalidInput, match="ready, delayed or dead_letters"):
            queue.purge("held")


def test_erase_leaves_nothing_but_the_trail(queue: Any) -> None:
    event = queue.publish("a", {"mail": "bob@example.com"}, title="Bob", delay=60)
    assert queue.erase(event.id, reason="asked for") is None
    queue.erase(event.id)
    erased = queue.event(event.id)
    assert (erased.payload, erased.title, erased.status) == ({"erased": True}, "a", "CANCELLED")
    assert [entry.action for entry in queue.log(event.id)] == ["EMITTED", "CANCELLED", "ERASED"]
    with pytest.raises(EventNotFound):
        queue.erase(10**30)


def test_types_that_nobody_handles_are_told_of_and_given_some_time(
    queue: Any, client: Client, db: Database
) -> None:
    event = queue.publish("order.paid")
    [kept] = queue.unhandled_types()
    assert (kept.queue, kept.type, kept.deliveries) == ("main", "order.paid", 1)
    assert (kept.oldest_at, kept.since) == (event.created_at, None)
    queue.change_namespace("default", unhandled="dead_letter", unhandled_after=timedelta(minutes=1))
    [default] = queue.namespaces()
    assert default.unhandled_after == timedelta(minutes=1)
    for _ in range(2):
        db.advance(minutes=1)
        queue.tick()
        [waiting] = queue.unhandled_types() or [None]
    assert waiting is None
    assert queue.dead_letter(event.id).reason == "No handler for event order.paid"
    with pytest.raises(InvalidInput, match="unhandled_after must be a number of seconds"):
        queue.change_namespace("default", unhandled_after="a while")


def test_namespaces_are_listed_made_changed_and_deleted(queue: Any, client: Client) -> None:
    assert queue.create_namespace("shop")
    assert not queue.create_namespace("shop")
    queue.change_namespace("shop", unhandled="dead_letter", metadata={"team": "billing"})
    default, shop = queue.namespaces()
    assert (default.name, default.unhandled, default.metadata) == ("default", "keep", {})
    assert (shop.name, shop.unhandled, shop.queues) == ("shop", "dead_letter", 1)
    assert shop.metadata == {"team": "billing"}
    client.queue(namespace="shop").publish("a")
    with pytest.raises(NamespaceNotEmpty, match="'shop' has unfinished deliveries"):
        queue.delete_namespace("shop")
    queue.delete_namespace("shop", with_deliveries=True)
    assert [one.name for one in queue.namespaces()] == ["default"]
    with pytest.raises(NamespaceNotFound):
        queue.change_namespace("shop")
    with pytest.raises(InvalidInput, match="no setting 'colour'"):
        queue.change_namespace("default", colour="red")
