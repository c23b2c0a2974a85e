"""`max_attempts` is another name of `max_retries`, and never another number."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace import Claimed, InvalidInput, NewEvent, Node
from headrace.node.registrations import handlers_of
from tests.client.clients import Client


def test_it_is_the_number_of_attempts(client: Client) -> None:
    queue = client.queue()
    many = [NewEvent("a", max_attempts=2), {"type": "a", "max_attempts": 2}]
    ids = [queue.publish("a", max_attempts=2).id, *queue.publish_many(many)]
    assert [queue.event(id).max_retries for id in ids] == [2, 2, 2]
    for _ in range(2):
        for claimed in queue.poll(max_events=3):
            queue.fail(claimed, retry_in=0)
    assert [queue.event(id).status for id in ids] == ["FAILED"] * 3
    assert [queue.event(id).attempts for id in ids] == [2, 2, 2]


def test_it_is_what_max_retries_is_of_queues_schedules_and_failures(client: Client) -> None:
    queue = client.queue()
    queue.create_queue("other", types=["a"], max_attempts=4)
    assert {one.name: one.max_retries for one in queue.queues()}["other"] == 4
    queue.change_queue("other", max_attempts=7)
    assert {one.name: one.max_retries for one in queue.queues()}["other"] == 7
    queue.change_queue("other", max_attempts=None)
    assert {one.name: one.max_retries for one in queue.queues()}["other"] == 3
    task = queue.schedule_task("daily", "0 0 * * *", max_attempts=2)
    assert task.event["max_retries"] == 2
    queue.publish("a")
    [claimed] = queue.poll()
    queue.fail(claimed, max_attempts=1)
    assert queue.event(claimed.id).status == "FAILED"


def test_a_handler_may_say_it_so() -> None:
    one = Node()

    @one.on_event("a", max_attempts=2)
    def single(event: Claimed) -> None: ...

    @one.on_batch("b", max_attempts=3)
    def batch(events: list[Claimed]) -> None: ...

    @one.every("0 0 * * *", max_attempts=4, max_retries=4)
    def daily(event: Claimed) -> None: ...

    assert [handler.max_retries for handler in handlers_of(one)] == [2, 3, 4]


ASKING: list[Callable[..., Any]] = [
    lambda queue, **both: queue.publish("a", **both),
    lambda queue, **both: queue.publish(NewEvent("a", **both)),
    lambda queue, **both: queue.publish_many([{"type": "a", **both}]),
    lambda queue, **both: queue.create_queue("other", **both),
    lambda queue, **both: queue.change_queue("main", **both),
    lambda queue, **both: queue.schedule_task("daily", "0 0 * * *", **both),
    lambda queue, **both: Node().on_event("a", **both)(print),
    lambda queue, **both: Node().on_batch("a", **both)(lambda events: None),
    lambda queue, **both: Node().every("0 0 * * *", **both)(test_a_handler_may_say_it_so),
]


@pytest.mark.parametrize("ask", ASKING)
def test_two_different_numbers_are_one_clear_error(client: Client, ask: Callable[..., Any]) -> None:
    queue = client.queue()
    with pytest.raises(
        InvalidInput,
        match=r"max_attempts and max_retries are two names for one number, .* give one of them, "
        "not 2 and 3",
    ):
        ask(queue, max_attempts=2, max_retries=3)
    with pytest.raises(InvalidInput, match="max_attempts must be a whole number from 1 to 1000"):
        ask(queue, max_attempts=0)
    assert queue.events().events == []
