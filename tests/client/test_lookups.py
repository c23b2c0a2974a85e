from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headrace import EventNotFound, InvalidInput
from tests.client.clients import Client
from tests.database import Database
from tests.requirements import requirement


@pytest.mark.parametrize("id", [0, -1, 1, 2**63 - 1, 2**63, -(2**70), 10**30])
def test_an_event_that_is_not_there_is_not_found(queue: Any, id: int) -> None:
    with pytest.raises(EventNotFound, match=f"no event {id} in the namespace 'default'"):
        queue.event(id)
    assert queue.log(id) == []


def test_an_id_that_is_no_number_is_refused(queue: Any) -> None:
    with pytest.raises(InvalidInput, match="whole number"):
        queue.event("1")


def test_an_event_of_another_namespace_is_not_found(client: Client) -> None:
    shop, default = client.queue(namespace="shop"), client.queue()
    event = shop.publish("a")
    with pytest.raises(EventNotFound):
        default.event(event.id)
    assert default.log(event.id) == []
    assert default.poll() == []
    assert shop.event(event.id) is not None


@requirement("EQ-17", "EB-13")
def test_stats_tell_what_stands_where_and_what_has_happened(queue: Any) -> None:
    queue.publish_many([("a", {})] * 4)
    queue.publish("b", delay=60)
    claimed = queue.poll(types=["a"], max_events=3)
    queue.complete(claimed[0], execution_time_ms=10)
    queue.fail(claimed[1], "x", execution_time_ms=20, reason="no use")
    stats = queue.stats()
    assert (stats.ready, stats.delayed, stats.processing, stats.dead_letters) == (1, 1, 1, 1)
    assert (stats.published, stats.completed, stats.failed, stats.dead_lettered) == (5, 1, 1, 1)
    assert (stats.attempts, stats.average_ms) == (2, 15)
    assert stats.oldest_ready_at <= datetime.now(UTC)
    assert queue.stats(period=timedelta(hours=1)).published == 5


def test_a_tick_tells_what_it_did(queue: Any, db: Database) -> None:
    queue.publish("a", delay=5)
    queue.publish("b")
    queue.poll(types=["b"], lease=5)
    db.advance(seconds=6)
    tick = queue.tick()
    assert (tick.due, tick.expired, tick.more, tick.kept_up) == (1, 1, False, False)
    assert queue.tick(upkeep=True).kept_up


def test_times_are_utc_whatever_the_session_says(client: Client, db: Database) -> None:
    db.sql(f"alter database {db.name} set timezone = 'Asia/Kathmandu'")
    queue = client.queue()
    event = queue.publish("a", delay=0.000001)
    (claimed,) = queue.poll()
    read = queue.event(event.id)
    times = [event.created_at, claimed.created_at, claimed.lease_expires_at, read.created_at]
    times += [queue.log(event.id)[0].created_at, queue.tick().at]
    assert {time.tzinfo for time in times} == {UTC}
    assert event.created_at == claimed.created_at == read.created_at


def test_a_time_beyond_pythons_years_does_not_break_a_reader(queue: Any, db: Database) -> None:
    event = queue.publish("a", delay=60)
    db.sql("update headrace.delayed set due_at = 'infinity'")
    assert queue.event(event.id).next_retry_at == datetime.max.replace(tzinfo=UTC)
