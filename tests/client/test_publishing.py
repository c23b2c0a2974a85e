from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from headrace import InvalidInput, InvalidPayload, NewEvent
from tests.client.clients import Client
from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.requirements import requirement


def count(db: Database) -> int:
    return db.sql("select count(*) from headrace.events")[0][0]


def test_an_event_needs_neither_type_nor_payload(queue: Any) -> None:
    event = queue.publish()
    assert (event.type, event.title, event.payload, event.tags) == ("event", "event", {}, ())
    assert queue.event(event.id).payload == {}


def test_a_title_defaults_to_the_type_on_reading(queue: Any) -> None:
    queue.publish("plain")
    queue.publish("titled", title="A title", correlation_id="c-1")
    (plain,) = queue.poll(types=["plain"])
    (titled,) = queue.poll(types=["titled"])
    assert (plain.title, titled.title) == ("plain", "A title")
    assert (plain.correlation_id, titled.correlation_id) == (None, "c-1")
    assert titled.details == {"title": "A title", "correlation_id": "c-1"}


@pytest.mark.parametrize("delay", [90, 90.0, timedelta(seconds=90)])
def test_a_delayed_event_is_not_handed_out_before_its_time(
    queue: Any, db: Database, delay: Any
) -> None:
    stop_the_clock(db)
    event = queue.publish("a", delay=delay)
    assert event.next_retry_at == event.created_at + timedelta(seconds=90)
    assert queue.event(event.id) == msgspec.structs.replace(event, max_retries=3)
    db.advance(seconds=89)
    queue.tick()
    assert queue.poll() == []
    db.advance(seconds=2)
    queue.tick()
    assert [claimed.id for claimed in queue.poll()] == [event.id]


def test_an_event_may_be_published_for_a_time(queue: Any, db: Database) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    event = queue.publish("a", at=at)
    assert (event.next_retry_at, db.placement()) == (at, {event.id: ["delayed"]})
    past = queue.publish("a", at=datetime(2001, 1, 1, tzinfo=UTC))
    assert (past.next_retry_at, db.placement()[past.id]) == (None, ["ready"])


@pytest.mark.one_database("priorities order the events of a shard")
def test_a_more_urgent_event_is_handed_out_first(queue: Any) -> None:
    late = queue.publish("a", priority=9)
    first = queue.publish("a", priority=0)
    assert [claimed.id for claimed in queue.poll(max_events=2)] == [first.id, late.id]


@dataclass
class Order:
    id: UUID
    at: datetime
    lines: tuple[int, ...]


def test_payloads_may_hold_what_msgspec_can_write(queue: Any) -> None:
    order = Order(UUID(int=1), datetime(2030, 1, 31, tzinfo=UTC), (1, 2))
    queue.publish("a", {"order": order, "none": None})
    (claimed,) = queue.poll()
    assert msgspec.convert(claimed.payload["order"], Order) == order


class Model:
    """What pydantic's models look like from outside."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        return {"mode": mode, "nothing": None}


def test_a_payload_may_be_a_pydantic_model(queue: Any) -> None:
    queue.publish("a", Model())
    assert queue.poll()[0].payload == {"mode": "json", "nothing": None}


def test_json_that_is_already_encoded_is_taken_as_it_is(queue: Any) -> None:
    queue.publish("a", msgspec.Raw(b' {"a": [1, 2.50]} '))
    queue.publish("b", msgspec.Raw(b"null"))
    assert queue.poll(types=["a"])[0].payload == {"a": [1, 2.5]}
    assert queue.poll(types=["b"])[0].payload is None


def test_many_events_are_published_in_the_order_given(queue: Any) -> None:
    ids = queue.publish_many(
        [
            NewEvent("a", {"n": 0}, tags=["x"]),
            {"type": "a", "payload": {"n": 1}, "priority": 3},
            ("a", {"n": 2}),
            ("a", None),
            {},
        ]
    )
    assert ids == sorted(ids)
    events = [queue.event(id) for id in ids]
    assert [event.payload for event in events] == [{"n": 0}, {"n": 1}, {"n": 2}, {}, {}]
    assert [event.type for event in events] == ["a", "a", "a", "a", "event"]
    assert (events[0].tags, events[1].priority) == (("x",), 3)


def test_publishing_nothing_is_nothing(queue: Any, db: Database) -> None:
    assert queue.publish_many([]) == []
    assert count(db) == 0


@pytest.mark.one_database("the test looks into its tables")
def test_thousands_are_published_together_and_keep_their_order(queue: Any, db: Database) -> None:
    ids = queue.publish_many(("a", {"n": n}) for n in range(3_456))
    assert len(ids) == 3_456
    assert ids == sorted(ids)
    stored = db.sql("select array_agg((payload->>'n')::int order by id) from headrace.events")
    assert stored == [(list(range(3_456)),)]
    assert db.sql("select count(distinct xmin::text) from headrace.events") == [(1,)]


@pytest.mark.one_database("the test looks into its tables")
def test_large_events_are_sent_in_parts_and_stored_together(queue: Any, db: Database) -> None:
    ids = queue.publish_many([("a", {"n": n, "text": "x" * 1_000_000}) for n in range(20)])
    assert [queue.event(id).payload["n"] for id in ids] == list(range(20))
    assert db.sql("select count(distinct xmin::text) from headrace.events") == [(1,)]


@pytest.mark.parametrize("refused", [("a,b", {}), ("a", {"n": float("nan")}), ("a", {"x": "\0"})])
def test_one_event_that_is_refused_refuses_them_all_and_is_named(
    queue: Any, db: Database, refused: Any
) -> None:
    for place in (0, 999, 1_000, 2_345):
        events = [("a", {"n": n}) for n in range(2_400)]
        events[place] = refused
        with pytest.raises(InvalidInput) as raised:
            queue.publish_many(events)
        assert raised.value.position == place
    assert count(db) == 0


def test_the_position_is_right_where_batches_are_cut_by_their_size(
    queue: Any, db: Database
) -> None:
    events: list[Any] = [("a", {"text": "x" * 900_000}) for _ in range(25)]
    events[21] = {"type": "a", "priority": 11}
    with pytest.raises(InvalidInput, match="priority") as raised:
        queue.publish_many(events)
    assert raised.value.position == 21
    assert count(db) == 0


def test_the_position_is_right_far_into_a_pipeline(queue: Any, db: Database) -> None:
    events = [("a", {})] * 9_500
    events[8_321] = ("a,b", {})
    with pytest.raises(InvalidInput, match="comma") as raised:
        queue.publish_many(events)
    assert raised.value.position == 8_321
    assert count(db) == 0
    assert len(queue.publish_many([("a", {})] * 9_500)) == count(db) == 9_500


@pytest.mark.parametrize("type", [5, b"a", ("a",), datetime(2030, 1, 1, tzinfo=UTC), UUID(int=1)])
@pytest.mark.parametrize("others", [0, 3, 300])
def test_what_is_no_string_is_no_type_among_many_either(
    queue: Any, db: Database, type: Any, others: int
) -> None:
    queue.publish_many([("a", {})] * 300)
    events: list[Any] = [*[("a", {})] * others, *[(type, {})] * 3]
    with pytest.raises(InvalidInput, match="must be a string") as raised:
        queue.publish_many(events)
    assert raised.value.position == others
    assert count(db) == 300


def test_an_iterable_that_breaks_off_publishes_nothing(queue: Any, db: Database) -> None:
    def events() -> Any:
        yield from (("a", {}) for _ in range(2_500))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        queue.publish_many(events())
    assert count(db) == 0
    queue.publish("a")


def test_what_is_no_event_is_refused(queue: Any) -> None:
    for event in ["text", 5, None, ("a",), ("a", {}, {}), {"typo": 1}, {1: 2}, ["a", {}]]:
        with pytest.raises(InvalidInput) as raised:
            queue.publish_many([("a", {}), event])
        assert raised.value.position == 1


def test_a_refusal_of_a_single_event_has_no_position(queue: Any) -> None:
    with pytest.raises(InvalidInput, match="comma") as raised:
        queue.publish("a,b")
    assert raised.value.position is None
    with pytest.raises(InvalidPayload) as raised:
        queue.publish("a", {"x": "\0"})
    assert raised.value.position is None


@requirement("G3")
@pytest.mark.parametrize("many", [False, True])
def test_an_event_exists_when_and_only_when_the_callers_transaction_commits(
    client: Client, db: Database, many: bool
) -> None:
    queue, connection = client.queue(), client.connection()
    db.sql("create table orders (id int)")

    def order(id: int) -> None:
        client.call(connection.execute, "insert into orders values (%s)", [id])
        if many:
            queue.publish_many([("order", {"id": id})] * 1_500, connection=connection)
        else:
            queue.publish("order", {"id": id}, connection=connection)

    order(1)
    assert count(db) == 0
    client.call(connection.rollback)
    order(2)
    assert count(db) == 0
    client.call(connection.commit)
    assert db.sql("select id from orders") == [(2,)]
    assert db.sql("select distinct payload->>'id' from headrace.events") == [("2",)]
    assert count(db) == (1_500 if many else 1)


def test_many_events_are_one_transaction_on_a_connection_that_has_none(
    client: Client, db: Database
) -> None:
    queue, connection = client.queue(), client.connection(autocommit=True)
    events: list[Any] = [("a", {})] * 1_500
    queue.publish_many(events, connection=connection)
    assert count(db) == 1_500
    with pytest.raises(InvalidInput):
        queue.publish_many([*events, ("a,b", {})], connection=connection)
    assert count(db) == 1_500


def test_many_events_join_a_transaction_block_of_the_callers(client: Client, db: Database) -> None:
    queue, connection = client.queue(), client.connection(autocommit=True)
    client.call(connection.execute, "begin")
    queue.publish_many([("a", {})] * 2_500, connection=connection)
    assert count(db) == 0
    client.call(connection.execute, "rollback")
    assert count(db) == 0


def test_many_of_several_types_have_their_ids_in_the_order_given(queue: Any) -> None:
    given = [(f"t.{n % 3}", {"n": n}) for n in range(100)]
    ids = queue.publish_many(given)
    told = [queue.event(id) for id in ids]
    assert [(event.type, event.payload) for event in told] == given


def test_a_refusal_names_the_place_although_types_go_together(queue: Any) -> None:
    given = [(f"t.{n % 3}", {"n": n}) for n in range(100)]
    given[50] = ("t.1", msgspec.Raw(b'{"n": 1e4400}'))
    with pytest.raises(InvalidPayload) as refusal:
        queue.publish_many(given)
    assert refusal.value.position == 50
