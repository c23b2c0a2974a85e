"""drain: a node's handlers run until nothing is left for them, on the database of the test."""

import asyncio
from dataclasses import replace
from typing import Any

import psycopg
import pytest

import headrace
from headrace import EventQueue, InvalidInput, Node
from headrace.testing import advance, assert_published, drain, drain_async, published
from headrace.testing.database import Database


@pytest.fixture
def node() -> Node:
    """As a module of the application has it: for a database that no test must touch."""
    return Node("shop-1", dsn="postgresql://nobody@127.0.0.1:1/production")


def test_what_is_ready_is_handled_and_what_that_publishes_too(
    node: Node, headrace_queue: EventQueue
) -> None:
    @node.on_event("order.created")
    async def pay(event: Any) -> None:
        await node.emit("order.paid", event.payload)

    @node.on_event("order.paid")
    def ship(event: Any, context: Any) -> None:
        context.emit("order.shipped", {"by": "boat"})

    headrace_queue.publish_many([("order.created", {"order": n}) for n in range(30)])
    drained = drain(node, reraise=True)
    assert (drained.completed, drained.failed, drained.dead_lettered) == (60, 0, 0)
    assert_published("order.shipped", {"by": "boat"}, count=30)
    shipped = published("order.shipped")[0]
    assert shipped.causation_id in {str(event.id) for event in published("order.paid")}
    assert shipped.status == "PENDING", "nobody handles that"


def test_a_transactional_handler_writes_into_the_database_of_the_test(
    node: Node, headrace_queue: EventQueue, headrace_database: Database
) -> None:
    @node.on_event("order.paid")
    def book(event: Any, connection: Any) -> None:
        connection.execute("insert into booked values (%s)", [event.payload["order"]])

    headrace_database.sql("create table booked (number int)")
    try:
        headrace_queue.publish("order.paid", {"order": 42})
        assert drain(node, reraise=True).completed == 1
        assert headrace_database.sql("select number from booked") == [(42,)]
    finally:
        headrace_database.sql("drop table booked")


def test_a_retry_waits_for_its_time(node: Node, headrace_queue: EventQueue) -> None:
    attempts = []

    @node.on_event("mail", max_retries=3)
    async def send(event: Any) -> None:
        attempts.append(event.attempt)
        if event.attempt < 3:
            raise ConnectionError("the server is away")

    event = headrace_queue.publish("mail")
    first = drain(node)
    assert (first.failed, [str(error) for error in first.errors]) == (1, ["the server is away"])
    assert drain(node).failed == 0
    advance(minutes=5)
    assert drain(node).failed == 1
    advance(minutes=5)
    assert drain(node).completed == 1
    assert attempts == [1, 2, 3]
    assert headrace_queue.event(event.id).status == "COMPLETED"


def test_a_dead_letter_is_one(node: Node, headrace_queue: EventQueue) -> None:
    @node.on_event("mail", max_retries=0)
    def send(event: Any) -> None:
        raise ValueError("no such address")

    event = headrace_queue.publish("mail")
    drained = drain(node)
    assert (drained.completed, drained.failed, drained.dead_lettered) == (0, 0, 1)
    assert headrace_queue.dead_letter(event.id).id == event.id


def test_errors_are_raised_on_request(node: Node, headrace_queue: EventQueue) -> None:
    told = []

    @node.on_event("mail")
    async def send(event: Any) -> None:
        raise ValueError(event.payload)

    node.settings = replace(node.settings, on_error=lambda error, event: told.append(event.id))
    event = headrace_queue.publish("mail", "one")
    with pytest.raises(ValueError, match="one"):
        drain(node, reraise=True)
    assert told == [event.id], "who was to be told of errors before still is"
    headrace_queue.publish_many([("mail", "two"), ("mail", "three")])
    with pytest.raises(ExceptionGroup) as group:
        drain(node, reraise=True)
    assert sorted(str(error) for error in group.value.exceptions) == ["three", "two"]


def test_what_nobody_can_claim_is_not_waited_for(node: Node, headrace_queue: EventQueue) -> None:
    @node.on_event("mail")
    async def send(event: Any) -> None:
        if event.payload == "later":
            raise ConnectionError

    headrace_queue.publish("mail", "later", key="Ada")
    headrace_queue.publish("mail", "after that", key="Ada")
    headrace_queue.publish("letter")
    headrace_queue.publish("mail", delay=60)
    drained = drain(node)
    assert (drained.completed, drained.failed) == (0, 1)
    headrace_queue.pause()
    headrace_queue.publish("mail")
    assert drain(node).completed == 0


def test_what_the_test_has_claimed_itself_is_not_waited_for(
    node: Node, headrace_queue: EventQueue
) -> None:
    @node.on_event("*")
    async def handle(event: Any) -> None: ...

    headrace_queue.publish_many([("a", 1), ("a", 2)])
    [mine] = headrace_queue.poll()
    assert drain(node).completed == 1
    headrace_queue.complete(mine)


def test_a_schedule_of_the_node_fires_when_its_time_has_come(
    node: Node, headrace_queue: EventQueue
) -> None:
    pytest.importorskip("cronsim")
    nights = []

    @node.every("0 2 * * *")
    async def nightly(event: Any) -> None:
        nights.append(event.type)

    drain(node)
    for _ in range(3):
        advance(days=1)
        drain(node, reraise=True)
    assert len(nights) == 3


def test_who_does_not_end_is_told_of(node: Node, headrace_queue: EventQueue) -> None:
    @node.on_event("loop")
    async def again(event: Any) -> None:
        await node.emit("loop")

    headrace_queue.publish("loop")
    with pytest.raises(AssertionError, match=r"not finished within 0.3 seconds: "):
        drain(node, timeout=0.3)


def test_the_node_is_as_it_was_before(node: Node, headrace_queue: EventQueue) -> None:
    before = node.settings
    drain(node)
    assert node.settings is before
    with pytest.raises((psycopg.OperationalError, headrace.HeadraceError)):
        asyncio.run(node.start())


async def _within_a_loop(node: Node) -> Any:
    with pytest.raises(InvalidInput, match="await drain_async"):
        drain(node)
    return await drain_async(node, reraise=True)


def test_within_an_event_loop_it_is_awaited(node: Node, headrace_queue: EventQueue) -> None:
    @node.on_event("*")
    def handle(event: Any) -> None: ...

    headrace_queue.publish_many([("a", 1), ("b", 2)])
    assert asyncio.run(_within_a_loop(node)).completed == 2
