from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from headrace import CursorNotFound, EventNotFound, EventPage, InvalidInput, NewEvent
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


@requirement("API-14")
def test_events_are_listed_page_by_page(queue: Any) -> None:
    ids = queue.publish_many([("a", {"n": n}) for n in range(30)])
    queue.publish("b", tags=["x"], title="The last", delay=60)
    claimed = queue.poll(types=["a"], max_events=3)
    queue.complete(claimed[0])
    page = queue.events()
    assert [event.title for event in page.events] == ["The last", *["a"] * 19]
    assert (page.total, page.total_is_exact) == (31, True)
    assert page.events[0].next_retry_at is not None
    assert page.events[1].payload is None
    assert [event.id for event in queue.events(offset=20).events] == ids[10::-1]
    assert queue.events(offset=31) == EventPage([], 31)
    assert queue.events(before=ids[1], payload=True).events[0].payload == {"n": 0}
    assert queue.events(before=ids[1]).total == 31

    done = queue.events(status="COMPLETED")
    assert ([event.id for event in done.events], done.total) == ([claimed[0].id], 1)
    assert queue.events(status=["PENDING", "PROCESSING"]).total == 30
    assert [event.type for event in queue.events(tags=["x"]).events] == ["b"]
    assert queue.events(types=["b*"], oldest_first=True, limit=1).total == 1


@requirement("API-21", "API-17")
def test_orphans_are_listed(queue: Any, db: Database) -> None:
    queue.publish_many([("a", {})] * 2)
    [claimed] = queue.poll(lease=3600, worker="host:1")
    db.advance(seconds=31)
    [orphan] = queue.events(orphaned=True).events
    assert (orphan.id, orphan.worker_id) == (claimed.id, "host:1")
    assert queue.events(orphaned=True, orphan_after=timedelta(minutes=1)).events == []


def test_what_cannot_be_listed_is_refused(queue: Any) -> None:
    for wrong in (
        {"status": "DONE"}, {"status": ["PENDING", 1]}, {"tags": "x"}, {"limit": 1001}, {"offset": -1},
        {"since": datetime(2026, 1, 1)}, {"orphaned": True, "orphan_after": -1},  # noqa: DTZ001
        {"limit": 10**30}, {"before": 10**30}, {"offset": "x"},
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            queue.events(**wrong)


def test_an_event_tells_its_deliveries_on_request(queue: Any) -> None:
    event = queue.publish("a")
    [claimed] = queue.poll(worker="w")
    assert queue.event(event.id).deliveries is None
    [delivery] = queue.event(event.id, deliveries=True).deliveries
    assert (delivery.queue, delivery.status, delivery.worker_id) == ("main", "PROCESSING", "w")
    assert delivery.lease_expires_at == claimed.lease_expires_at


@requirement("PG-26")
def test_dead_letters_are_listed_shown_and_grouped(queue: Any) -> None:
    ids = queue.publish_many([NewEvent("a", {"n": n}, title="T", trace_id="t") for n in range(3)])
    for n, claimed in enumerate(queue.poll(max_events=3)):
        queue.fail(claimed, f"no user {n}", reason="Handler error")
    letters = queue.dead_letters(types=["a"])
    assert [letter.id for letter in letters] == ids[::-1]
    assert (letters[0].payload, letters[0].title, letters[0].trace_id) == (None, "T", "t")
    letter = queue.dead_letter(ids[0])
    assert (letter.payload, letter.reason, letter.error) == ({"n": 0}, "Handler error", "no user 0")
    [group] = queue.dead_letter_groups()
    assert (group.message, group.letters, group.types) == ("no user 2", 3, ("a",))
    assert group.sample_ids == tuple(ids[::-1])
    assert queue.dead_letters(fingerprint=group.fingerprint, before=ids[1], limit=1)[0].id == ids[0]
    for id in (ids[-1] + 100, -1, 10**30):
        with pytest.raises(EventNotFound):
            queue.dead_letter(id)


@requirement("API-17")
def test_workers_are_known_without_registering(queue: Any) -> None:
    queue.publish_many([("a", {})] * 3)
    claimed = queue.poll(max_events=2, worker="host:1")
    queue.complete(claimed[0])
    [worker] = queue.workers(period=timedelta(minutes=1))
    assert (worker.worker_id, worker.holds, worker.completed) == ("host:1", 1, 1)
    assert worker.lease_expires_at == claimed[1].lease_expires_at


@pytest.mark.one_database("the log of several goes on after a cursor, not after a number")
@requirement("G17", "API-15")
def test_the_log_is_followed(queue: Any) -> None:
    event = queue.publish("a")
    queue.complete(queue.poll(worker="w"))
    page = queue.log_since(limit=2)
    assert [entry.action for entry in page.entries] == ["EMITTED", "PICKED"]
    page = queue.log_since(page.after, mark=page.mark)
    [entry] = page.entries
    assert (entry.action, entry.event_id, entry.type) == ("COMPLETED", event.id, "a")
    assert entry == msgspec.structs.replace(queue.log(event.id)[-1], type="a")
    assert queue.log_since(page.after, mark=page.mark).entries == []
    assert [e.action for e in queue.log_since(actions=["PICKED"]).entries] == ["PICKED"]
    for place in (10**15, "1abc-5"):
        with pytest.raises(CursorNotFound):
            queue.log_since(place)
    assert queue.log_since("0").entries == queue.log_since(0).entries != []
    assert queue.log_since(page.cursor).entries == []
    for wrong in (
        {"limit": 0},
        {"after": 10**30},
        {"after": "x"},
        {"after": -1},
        {"actions": "PICKED"},
        {"actions": ["SLEPT"]},
    ):
        with pytest.raises(InvalidInput):
            queue.log_since(**wrong)


@pytest.mark.one_database("a stretch is one of each shard")
def test_a_stretch_of_ids_is_looked_at_and_then_the_next(queue: Any) -> None:
    rare = [queue.publish("rare").id]
    queue.publish_many([{"type": "common"}] * 300)
    rare.append(queue.publish("rare").id)
    page = queue.events(types=["rare"], look_at=100)
    assert ([event.id for event in page.events], page.total_is_exact) == ([rare[1]], False)
    found, looks = [], 0
    while page.searched_to is not None:
        looks += 1
        page = queue.events(types=["rare"], look_at=100, before=page.searched_to)
        found += [event.id for event in page.events]
    assert found == [rare[0]]
    assert 2 <= looks <= 6
    assert page.total_is_exact
    back = queue.events(types=["rare"], look_at=100, oldest_first=True, after=rare[0])
    while not back.events:
        back = queue.events(types=["rare"], look_at=100, oldest_first=True, after=back.searched_to)
    assert [event.id for event in back.events] == [rare[1]]
    full = queue.events(types=["common"], look_at=100, limit=5)
    assert (len(full.events), full.total_is_exact, full.searched_to) == (5, False, None)
    whole = queue.events(types=["rare"], look_at=1_000_000)
    assert (whole.total, whole.total_is_exact, whole.searched_to) == (2, True, None)
    with pytest.raises(InvalidInput):
        queue.events(look_at=0)


@pytest.mark.one_database("a stretch is one of each shard")
def test_what_is_older_than_was_asked_for_is_not_looked_at(queue: Any, db: Database) -> None:
    queue.publish_many([{"type": "common"}] * 300)
    db.advance(hours=3)
    recent = [queue.publish("common").id, queue.publish("rare").id]
    now = queue.event(recent[0]).created_at
    page = queue.events(since=now - timedelta(hours=1), look_at=200)
    assert [event.id for event in page.events] == recent[::-1]
    assert (page.total, page.total_is_exact, page.searched_to) == (2, True, None)
    # Whether something before it may be as young is not known of what is hardly older.
    page = queue.events(since=now - timedelta(hours=1), look_at=1)
    assert (len(page.events), page.total_is_exact) == (1, False)
    assert page.searched_to is not None
