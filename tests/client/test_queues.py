"""Queues through both clients: made, changed, looked at, paused, waited for."""

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import headrace
from headrace import (
    InvalidInput,
    QueueDraining,
    QueueExists,
    QueueFull,
    QueueNotEmpty,
    QueueNotFound,
)
from headrace.engine.encoding import BATCH_EVENTS
from headrace.engine.verbs import Verbs
from tests.client.clients import Client
from tests.database import Database
from tests.requirements import requirement


def test_a_queue_is_made_once_with_its_settings(queue: Any) -> None:
    def create() -> bool:
        return queue.create_queue(
            "billing",
            types=["order.*"],
            tags=["b", "a"],
            all_tags=True,
            max_retries=5,
            backoff={"kind": "linear", "delay": 2},
            max_queue_depth=100,
            high_watermark=80,
            batch_size=10,
            processing_interval=0.25,
            persistence_threshold=50,
            require_lease_token=True,
            order="oldest",
            lease=timedelta(minutes=10),
            limits=[headrace.Limit("queue", at_once=7)],
            max_snoozes=3,
            metadata={"team": "money"},
        )

    assert [create(), create()] == [True, False]
    made = queue.queue("billing")
    assert made == headrace.Queue(
        name="billing",
        state="active",
        takes=True,
        types=("order.*",),
        tags=("a", "b"),
        all_tags=True,
        depth=0,
        filling=None,
        max_retries=5,
        backoff={"kind": "linear", "delay": 2},
        max_queue_depth=100,
        high_watermark=80,
        batch_size=10,
        processing_interval=timedelta(milliseconds=250),
        persistence_threshold=50,
        require_lease_token=True,
        order="oldest",
        lease=timedelta(minutes=10),
        limits=(headrace.Limit("queue", at_once=7),),
        fair_by=None,
        aging=None,
        max_snoozes=3,
        metadata={"team": "money"},
        created_at=made.created_at,
    )
    assert made.created_at.tzinfo is UTC
    assert [one.name for one in queue.queues()] == ["billing", "main"]
    with pytest.raises(QueueExists, match="takes something else"):
        queue.create_queue("billing")


@pytest.mark.one_database("the test looks into its tables")
def test_how_long_a_claim_lasts_is_a_setting_of_its_queue(queue: Any, db: Database) -> None:
    def lasts(**asked: Any) -> float:
        queue.publish("a")
        queue.publish("a")
        (claimed,) = queue.poll(**asked)
        one = queue.poll_one(**asked)
        [(now,)] = db.sql("select headrace._now()")
        assert abs(one.lease_expires_at - claimed.lease_expires_at) < timedelta(seconds=30)
        return (one.lease_expires_at - now).total_seconds()

    assert 50 < lasts() <= 60
    queue.change_queue("main", lease=600)
    assert 500 < lasts() <= 600
    assert lasts(lease=5) <= 5
    assert queue.queue().lease == timedelta(minutes=10)
    queue.change_queue("main", lease=None)
    assert 50 < lasts() <= 60
    assert queue.queue().lease is None
    for wrong in (0, timedelta(days=8)):
        with pytest.raises(InvalidInput, match="lease of a queue"):
            queue.change_queue("main", lease=wrong)


def test_a_queue_begins_in_the_past(queue: Any, db: Database) -> None:
    ids = queue.publish_many([("a", None)] * 3)
    queue.create_queue("all", after=0)
    queue.create_queue("none", since=datetime.now(UTC) + timedelta(days=1))
    assert queue.queue("all").filling == "waiting"
    while queue.tick().more:
        pass
    assert (queue.queue("all").depth, queue.queue("none").depth) == (len(ids), 0)
    with pytest.raises(InvalidInput, match="since"):
        queue.create_queue("wrong", since=datetime.now())  # noqa: DTZ005
    with pytest.raises(InvalidInput, match="not both"):
        queue.create_queue("wrong", since=datetime.now(UTC), after=0)


def test_what_is_named_is_changed_and_none_brings_the_default_back(queue: Any) -> None:
    queue.change_queue("main", max_retries=0, types=["a"], processing_interval=timedelta(seconds=2))
    changed = queue.queue()
    assert (changed.max_retries, changed.types) == (0, ("a",))
    assert changed.processing_interval == timedelta(seconds=2)
    queue.change_queue("main", types=None, takes=False)
    changed = queue.queue()
    assert (changed.max_retries, changed.types, changed.takes) == (0, None, False)
    with pytest.raises(InvalidInput, match="no setting 'max_tries'"):
        queue.change_queue("main", max_tries=1)
    with pytest.raises(QueueNotFound):
        queue.change_queue("billing", max_retries=1)
    with pytest.raises(QueueNotFound):
        queue.queue("billing")


def test_a_queue_is_deleted_with_what_it_has_only_when_asked(queue: Any) -> None:
    queue.create_queue("billing")
    queue.delete_queue("billing")
    assert [one.name for one in queue.queues()] == ["main"]
    queue.publish("a")
    queue.create_queue("billing", after=0)
    while queue.tick().more:
        pass
    with pytest.raises(QueueNotEmpty):
        queue.delete_queue("billing")
    queue.delete_queue("billing", with_deliveries=True)
    with pytest.raises(QueueNotFound):
        queue.delete_queue("billing")
    with pytest.raises(InvalidInput, match="switches it off"):
        queue.delete_queue("main")


def test_a_queue_is_paused_drained_and_resumed(queue: Any) -> None:
    states = []
    for change in (queue.pause, queue.drain, queue.resume, queue.drain, queue.tick):
        change()
        states.append(queue.queue().state)
    assert states == ["paused", "draining", "active", "draining", "paused"]


@pytest.mark.one_database("a limit is one of each shard")
@requirement("G15")
def test_from_the_high_watermark_on_publishers_are_told(queue: Any) -> None:
    queue.change_queue("main", high_watermark=2)
    assert not queue.publish("a").pressure
    assert not queue.publish_many([("a", None)]).pressure
    assert queue.publish("a").pressure
    ids = queue.publish_many([("a", n) for n in range(1_500)])
    assert ids.pressure
    assert (len(ids), ids == list(ids)) == (1_500, True)
    assert not queue.publish_many([]).pressure


@requirement("G15")
def test_a_full_or_draining_queue_refuses_the_whole_call(queue: Any) -> None:
    queue.change_queue("main", max_queue_depth=2)  # a count is trusted for microseconds
    queue.publish("a")
    with pytest.raises(QueueFull, match="max_queue_depth is 2"):
        queue.publish_many([("a", n) for n in range(BATCH_EVENTS + 1)])  # at its second statement
    assert queue.queue().depth == 1
    queue.drain()
    with pytest.raises(QueueDraining):
        queue.publish("a")


@pytest.mark.one_database("a limit is one of each shard")
def test_in_a_transaction_of_the_callers_a_limit_refuses_only_if_asked_to(client: Client) -> None:
    queue = client.queue()
    queue.change_queue("main", max_queue_depth=1)
    assert not queue.publish("a").pressure
    connection = client.connection()
    on_it = client.queue_on(connection)
    assert queue.publish("a", connection=connection).pressure
    assert queue.publish_many([("a", None)] * 2, connection=connection).pressure
    assert on_it.publish("a").pressure
    for publish in (queue.publish, on_it.publish):
        with pytest.raises(QueueFull):
            publish("a", enforce=True, connection=connection)
        client.call(connection.rollback)
    client.call(connection.set_autocommit, True)
    with pytest.raises(QueueFull):  # no transaction of the caller's
        on_it.publish("a")


def test_waiting_for_capacity_ends_when_there_is_some(client: Client, db: Database) -> None:
    queue = client.queue()
    assert queue.wait_for_capacity(timeout=0)
    queue.change_queue("main", high_watermark=2)
    queue.publish_many([("a", None)] * 2)
    assert queue.wait_for_capacity("a", tags=["b"], timeout=0) is False

    waiting = threading.Event()
    answers: list[bool] = []

    def wait() -> None:
        waiting.set()
        answers.append(queue.wait_for_capacity("a"))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait()
    consumer = db.queue()
    consumer.complete(consumer.poll())
    thread.join(60)
    assert answers == [True]


def test_waiting_for_capacity_gives_up_in_time_and_at_once_when_draining(queue: Any) -> None:
    queue.change_queue("main", max_queue_depth=1)
    queue.publish("a")
    started = time.monotonic()
    assert queue.wait_for_capacity(timeout=timedelta(milliseconds=50)) is False
    assert time.monotonic() - started < 30
    queue.drain()
    with pytest.raises(QueueDraining):
        queue.wait_for_capacity()


def test_who_waits_asks_less_and_less_often_and_once_more_at_the_end() -> None:
    calls = Verbs("default", "main", None)
    clock = 0.0
    calls.memory.clock = lambda: clock
    pauses = []
    for pause in calls.pauses(60):
        pauses.append(pause)
        clock += pause
    assert 60 <= len(pauses) <= 130
    assert all(0.005 <= pause <= 1 for pause in pauses[:-2])
    assert sum(pauses) == pytest.approx(60)
    assert pauses[-1] == 0


def test_another_queue_is_paused_drained_and_resumed_by_its_name(queue: Any) -> None:
    queue.create_queue("other")
    for act, state in (("pause", "paused"), ("resume", "active"), ("drain", "draining")):
        getattr(queue, act)("other")
        assert queue.queue("other").state == state
        assert queue.queue().state == "active"


@pytest.mark.one_database("the order is one of each shard")
def test_a_queue_of_strict_order_gives_the_oldest_of_all(queue: Any) -> None:
    queue.change_queue("main", order="oldest")
    types = "cabbac" * 5
    ids = [queue.publish(type, n).id for n, type in enumerate(types)]
    told = [queue.poll_one().id for _ in range(6)]
    told += [claimed.id for claimed in queue.poll(max_events=17)]
    told += [claimed.id for claimed in queue.poll(max_events=100)]
    assert told == ids
    with pytest.raises(InvalidInput, match="the order of a queue is fair or oldest"):
        queue.change_queue("main", order="newest")
    queue.change_queue("main", order=None)
    assert queue.queue().order == "fair"
