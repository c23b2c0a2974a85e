from datetime import timedelta
from typing import Any

import pytest

from headrace import EventNotFound, Failed, InvalidInput
from headrace.model.attention import number
from headrace.model.duration import duration_text
from headrace.model.story import error_line
from tests.client.clients import Client
from tests.database import Database


def test_a_history_has_its_points(queue: Any, db: Database) -> None:
    queue.publish_many([{"type": "a"}] * 3)
    db.sql("select headrace.tick()")
    history = queue.history(timedelta(minutes=15))
    assert (history.step, len(history.points)) == (5, 180)
    assert history.points[0].at < history.points[1].at
    assert queue.history().step == 20
    for wrong in (1, timedelta(days=30), -1):
        with pytest.raises(InvalidInput):
            queue.history(wrong)


def test_what_needs_attention_can_be_said(client: Client, db: Database) -> None:
    shop = client.queue(namespace="shop")
    db.sql("select headrace.tick()")
    shop.publish("a")
    shop.pause(actor="anna")
    [finding] = shop.attention()
    assert (finding.code, finding.namespace, finding.queue) == ("paused", "shop", "main")
    assert finding.sentence == "The queue main was paused by anna, and 1 event waits in it."
    assert client.queue().attention() == []
    assert client.queue().attention(everywhere=True) == [finding]


@pytest.mark.one_database("relatives are found on the same shard")
def test_a_story_has_attempts_and_relatives(queue: Any) -> None:
    cause = queue.publish("order")
    mail = queue.publish("mail", causation_id=str(cause.id), correlation_id=str(cause.id))
    bill = queue.publish("bill", correlation_id=str(cause.id), max_retries=2)
    for error in ("first\nand more", ValueError("second")):
        [claimed] = queue.poll(types=["bill"], max_events=1)
        queue.finish([Failed(claimed, error, retry_in=0)])
    [claimed] = queue.poll(types=["mail"], max_events=1)
    story = queue.story(bill.id)
    assert story.event.id == bill.id
    assert [one.action for one in story.attempts] == ["FAILED", "FAILED"]
    first, second = story.attempts
    assert (first.error_message, first.error_traceback) == ("first", "first\nand more")
    assert second.error_message == "ValueError: second"
    assert first.picked_at <= first.ended_at <= second.picked_at
    assert first.execution_time_ms is not None
    assert [one.status for one in story.deliveries] == ["FAILED"]
    assert [one.id for one in story.same_correlation] == [cause.id, mail.id]
    told = queue.story(mail.id)
    assert told.caused_by.id == cause.id
    assert [(one.attempt, one.action, one.ended_at) for one in told.attempts] == [(1, None, None)]
    assert [one.id for one in queue.story(cause.id).causes] == [mail.id]
    with pytest.raises(EventNotFound):
        queue.story(999_999)


def test_events_are_found_by_what_one_has_in_his_hand(queue: Any) -> None:
    event = queue.publish("a", {"n": 1}, idempotency_key="key", correlation_id="chain")
    for word in (str(event.id), "key", "chain"):
        assert [one.id for one in queue.find_events(word)] == [event.id]
    assert queue.find_events("a") == []
    assert queue.find_events("key")[0].payload is None
    assert queue.find_events("key", payload=True)[0].payload == {"n": 1}
    with pytest.raises(InvalidInput):
        queue.find_events("a", limit=0)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "0s"),
        (119, "1m59s"),
        (120, "2m"),
        (7199, "1h59m"),
        (7200, "2h"),
        (86400 * 3, "3d"),
    ],
)
def test_durations_are_said_as_people_say_them(seconds: float, said: str) -> None:
    assert duration_text(seconds) == said


def test_numbers_are_said_with_their_noun() -> None:
    assert number(1, "event") == "1 event"
    assert number(2000, "event") == "2,000 events"
    assert number(1000, "event", 1000) == "1,000 events or more"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("", ""),
        ("\n  \n", ""),
        ("one\ntwo", "one"),
        ('Traceback\n  File "a"\n    f()\nKeyError: 1', "KeyError: 1"),
        (
            '  File "a"\n    f()\nOSError\n\nDuring\n  File "b"\n    g()\nKeyError: 2\nnote',
            "KeyError: 2",
        ),
    ],
)
def test_the_line_that_says_most_is_found(error: str, line: str) -> None:
    assert error_line(error) == line
