"""publish: stores events once, queues them, and returns their ids in the order given."""

import json
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

import pytest
from psycopg.types.json import Jsonb

from tests.database import Database
from tests.engine.functions_helpers import Engine, Listener, contents, differences, refused
from tests.requirements import requirement

# Everything that describes an event beside its type and payload.
DETAILS: dict[str, Any] = {
    "title": "A title",
    "description": "What happened",
    "version": "1.0.0",
    "source": {"type": "task", "id": "7", "name": "billing"},
    "correlation_id": "c-1",
    "causation_id": "c-0",
    "trace_id": "t-1",
    "producer": "host:42",
    "backoff": {"kind": "linear", "delay": 2, "max_delay": 60, "jitter": 0.5},
}


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def stored(db: Database, type: str) -> list[tuple[Any, ...]]:
    """The events of a type and how they were queued: every column but for the numbers."""
    return db.sql(
        """
        select to_jsonb(e) - 'id', to_jsonb(r) - '{event,seq}'::text[], r.seq = r.event
        from headrace.events e join headrace.ready r on r.event = e.id
        where e.type = %s order by e.id
        """,
        [type],
    )


def publish_one(engine: Engine, type: str | None, payload: Any) -> Any:
    [row] = engine.call("publish_one", namespace="default", type=type, payload=json.dumps(payload))
    return row


def publish_many(engine: Engine, type: str | None, payloads: Any) -> Any:
    [row] = engine.call(
        "publish_many", namespace="default", type=type, payloads=json.dumps(payloads)
    )
    return row


# --- what it returns and stores


@requirement("EQ-6", "EB-5", "EQ-20", "EB-1")
def test_a_published_event_is_pending_and_was_never_attempted(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"type": "order.created", "payload": {"total": 12}})

    event = engine.event(id)
    assert (event.status, event.attempts, event.retry_count) == ("PENDING", 0, 0)
    assert (event.type, event.payload) == ("order.created", {"total": 12})
    assert db.placement() == {id: ["ready"]}
    assert db.sql("select pg_typeof(id)::text from headrace.events") == [("bigint",)]


def test_the_ids_come_back_in_the_order_given_and_grow(engine: Engine, db: Database) -> None:
    ids = engine.publish(*({"type": f"t{n % 7}", "payload": n} for n in range(500)))

    assert ids == sorted(set(ids))
    assert db.sql("select id, payload from headrace.events order by id") == [
        (id, n) for n, id in enumerate(ids)
    ]


def test_later_batches_have_larger_ids(engine: Engine) -> None:
    ids = [engine.publish({"payload": n}, {"payload": n})[i] for n in range(3) for i in (0, 1)]
    assert ids == sorted(ids)


def test_publish_says_when_the_events_were_created(engine: Engine, db: Database) -> None:
    [answer] = engine.call(
        "publish", namespace="default", events='[{"payload": 1}, {"payload": 2}]'
    )
    assert db.sql("select distinct created_at from headrace.events") == [(answer.created_at,)]


def test_one_object_may_stand_for_an_array_of_one(engine: Engine, db: Database) -> None:
    [plain] = engine.publish_json('{"type": "a", "payload": 1}')
    [described] = engine.publish_json('{"type": "a", "payload": 1, "title": "T"}')

    assert db.sql("select id, type, payload, details from headrace.events order by id") == [
        (plain, "a", 1, None),
        (described, "a", 1, {"title": "T"}),
    ]


def test_an_empty_batch_stores_nothing(engine: Engine, db: Database) -> None:
    assert engine.publish() == []
    assert db.placement() == {}
    assert db.sql("select count(*) from headrace.routes") == [(0,)]


def test_an_event_without_type_and_payload_has_the_defaults(engine: Engine, db: Database) -> None:
    [id] = engine.publish({})

    event = engine.event(id)
    assert (event.type, event.payload, event.tags, event.details) == ("event", {}, None, None)
    assert (event.priority, event.max_retries, event.next_retry_at) == (5, 3, None)
    assert db.sql("select max_retries from headrace.events") == [
        (None,)
    ]  # the queue's, whenever it is asked


def test_any_json_value_is_a_payload(engine: Engine) -> None:
    for payload in (None, True, 0, -1.5, "", "text", [], [1, [2]], {}, {"a": None}):
        ids = engine.publish({"type": "a", "payload": payload})
        ids += engine.publish({"payload": payload, "title": "T"}, {"payload": payload})
        assert [engine.event(id).payload for id in ids] == [payload] * 3


PLAIN: list[dict[str, Any]] = [
    {"type": "order.created", "payload": {"total": 12, "lines": [1, 2, None]}},
    {"type": "event", "payload": {}},
    {"type": "null", "payload": None},
    {"type": "long", "payload": "x" * 280},
    {"type": "ß" * 200, "payload": []},
    {"type": "a b'\"; --", "payload": [True]},
]


def test_a_single_plain_event_is_stored_as_a_batch_stores_it(engine: Engine, db: Database) -> None:
    # With a clock that stands still, so that every column can be compared.
    db.sql("create table noon as select headrace._now() as at")
    db.sql("""create or replace function headrace._now() returns timestamptz
              language sql as 'select at from public.noon'""")

    for event in PLAIN:
        engine.publish_json(json.dumps(event))  # the short way
        engine.publish_json(json.dumps([event]))
        engine.publish(event, event)  # the way of a batch
        engine.publish({**event, "tags": []})  # the way of what has more than a type and a payload
        publish_one(engine, event["type"], event["payload"])
        publish_many(engine, event["type"], [event["payload"]])

        rows = stored(db, event["type"])
        assert len(rows) == 7
        assert all(row == rows[0] for row in rows), rows
        assert db.sql("select tags from headrace.routes where type = %s", [event["type"]]) == [
            ([],)
        ]
    assert db.sql("select published, count(*) from headrace.counts group by 1 order by 1") == [
        (1, 5 * len(PLAIN)),
        (2, len(PLAIN)),
    ]
    assert db.sql("select count(distinct (at, namespace, queue)) from headrace.counts") == [(1,)]


def test_one_event_goes_to_every_queue_that_takes_it_at_that_moment(
    engine: Engine, db: Database
) -> None:
    first = publish_one(engine, "order.created", 1)
    engine.call("create_queue", namespace="default", queue="audit", types=["order.*"])
    second = publish_one(engine, "order.created", 2)
    third = publish_one(engine, "order.created", 3)
    assert db.sql(
        "select r.event, q.name from headrace.ready r join headrace.queues q on q.id = r.queue order by 1, 2"
    ) == [
        (first.id, "main"),
        *((id, queue) for id in (second.id, third.id) for queue in ("audit", "main")),
    ]
    assert db.sql("select sum(published) from headrace.counts") == [(5,)]
    assert first.created_at < second.created_at < third.created_at
    assert not third.pressure


def test_a_type_is_known_by_its_name_not_by_its_route(engine: Engine, db: Database) -> None:
    publish_one(engine, "order.created", 1)
    # As if the digests of the two were the same: then what is known of the one is not true of the other.
    db.sql("update headrace.bindings set route = headrace._route('a,b', null)")
    with refused("QU001", "comma"):
        publish_one(engine, "a,b", 1)
    assert db.sql("select count(*) from headrace.events") == [(1,)]


@pytest.mark.parametrize(
    ("type", "payload", "sqlstate"),
    [
        ("", 1, "QU001"),
        (None, 1, "QU001"),
        ("a*", 1, "QU001"),
        ("x" * 201, 1, "QU001"),
        ("good", {"n": 10**400}, "QU002"),
    ],
)
def test_one_event_is_looked_at_as_closely_as_many(
    engine: Engine, db: Database, type: str | None, payload: Any, sqlstate: str
) -> None:
    publish_one(engine, "good", 1)
    for _ in range(2):
        with refused(sqlstate):
            publish_one(engine, type, payload)
    assert db.sql("select count(*) from headrace.events") == [(1,)]


def test_many_of_one_type_are_stored_and_packed_as_a_batch_is(engine: Engine, db: Database) -> None:
    engine.call("create_queue", namespace="default", queue="audit", types=["order.*"])
    payloads: list[Any] = [{"n": n} for n in range(300)]
    for type in ("order.new", "order.known"):
        if type == "order.known":
            publish_one(engine, type, "so that it is known")
        published = publish_many(engine, type, payloads)
        found = db.sql(
            "select id, payload from headrace.events where id = any(%s) order by id",
            [published.ids],
        )
        assert [id for id, _ in found] == published.ids
        assert [payload for _, payload in found] == payloads
        assert db.sql(
            """select q.name, sum(cardinality(r.pack)), count(*) < 5
               from headrace.ready r join headrace.queues q on q.id = r.queue
               where pack <@ %s::bigint[] group by 1 order by 1""",
            [published.ids],
        ) == [("audit", 300, True), ("main", 300, True)]
        assert not published.pressure
    assert db.sql("select sum(published) from headrace.counts") == [(2 * 601,)]


@pytest.mark.parametrize(
    ("type", "payloads", "sqlstate"),
    [
        ("", [1], "QU001"),
        (None, [1], "QU001"),
        ("a*", [1], "QU001"),
        ("good", {}, "QU001"),
        ("good", None, "QU001"),
        ("good", [1, {"n": 10**400}], "QU002"),
        ("good", [1, "x" * (1024 * 1024 + 1)], "QU003"),
    ],
)
@pytest.mark.parametrize("known", [True, False])
def test_many_of_one_type_are_looked_at_as_closely_as_others(
    engine: Engine, db: Database, known: bool, type: str | None, payloads: Any, sqlstate: str
) -> None:
    if known:
        publish_one(engine, "good", 1)
    for _ in range(2):
        with refused(sqlstate) as error:
            publish_many(engine, type, payloads)
        if payloads and len(payloads) > 1:
            assert "event 2 of the batch" in str(error.value.diag.message_detail)
    assert db.sql("select count(*) from headrace.events") == [(int(known),)]


def test_none_of_a_type_are_none(engine: Engine, db: Database) -> None:
    for _ in range(2):
        assert publish_many(engine, "a", []).ids == []
        publish_one(engine, "a", 1)
    assert db.sql("select sum(published) from headrace.counts") == [(2,)]


def test_one_event_without_a_payload_has_an_empty_one(engine: Engine, db: Database) -> None:
    for _ in range(2):
        engine.call("publish_one", namespace="default", type="a", payload=None)
    assert db.sql("select payload from headrace.events") == [({},), ({},)]


def test_what_describes_an_event_comes_back_with_it(engine: Engine) -> None:
    [id] = engine.publish({"type": "a", **DETAILS})

    assert engine.event(id).details == DETAILS
    assert engine.claim().details == DETAILS


def test_each_description_stands_for_itself(engine: Engine) -> None:
    for field, value in DETAILS.items():
        [id] = engine.publish({field: value})
        assert engine.event(id).details == {field: value}


# --- tags and routes


def test_tags_are_trimmed_and_keep_their_order(engine: Engine) -> None:
    [id] = engine.publish({"tags": ["  urgent ", "eu", "billing  ", "eu"]})
    assert engine.event(id).tags == ["urgent", "eu", "billing", "eu"]


def test_the_order_of_tags_makes_no_other_route(engine: Engine, db: Database) -> None:
    engine.publish({"type": "a", "tags": ["x", "y"]}, {"type": "a", "tags": ["y", " x", "x"]})
    engine.publish({"type": "a", "tags": ["y", "x"]})

    assert db.sql("select type, tags from headrace.routes") == [("a", ["x", "y"])]
    assert db.sql("select count(distinct route) from headrace.ready") == [(1,)]
    assert db.sql("select e.tags from headrace.events e order by e.id") == [
        (["x", "y"],),
        (["y", "x", "x"],),
        (["y", "x"],),
    ]


def test_no_tags_and_an_empty_list_of_tags_are_one_route(engine: Engine, db: Database) -> None:
    engine.publish({"type": "a"})
    engine.publish({"type": "a", "tags": []}, {"type": "a"})

    assert db.sql("select type, tags from headrace.routes") == [("a", [])]
    assert db.sql("select count(distinct route) from headrace.ready") == [(1,)]


def test_a_route_is_stored_once(engine: Engine, db: Database) -> None:
    for _ in range(3):
        engine.publish({"type": "a", "payload": 1})
        engine.publish({"type": "a"}, {"type": "b"}, {"type": "a"}, {"type": "a", "tags": ["x"]})

    assert sorted(db.sql("select type, tags from headrace.routes")) == [
        ("a", []),
        ("a", ["x"]),
        ("b", []),
    ]


def test_types_and_tags_are_not_mixed_up_in_a_route(engine: Engine, db: Database) -> None:
    engine.publish(
        {"type": "a", "tags": ["b", "c"]},
        {"type": "a", "tags": ["b c"]},
        {"type": "a b", "tags": ["c"]},
        {"type": "a"},
    )
    assert db.sql("select count(distinct route) from headrace.ready") == [(4,)]


def test_fifty_tags_of_a_hundred_characters_are_accepted(engine: Engine) -> None:
    tags = [f"{n:02}" + "é" * 98 for n in range(50)]
    [id] = engine.publish({"tags": tags})
    assert engine.event(id).tags == tags


# --- time and urgency


def test_a_delayed_event_is_not_claimable_before_its_time(engine: Engine, db: Database) -> None:
    [id] = engine.publish({"type": "later", "delay": 90.5, "priority": 2})

    event = engine.event(id)
    assert (event.status, event.priority) == ("PENDING", 2)
    assert event.next_retry_at - event.created_at == timedelta(seconds=90.5)
    assert db.placement() == {id: ["delayed"]}
    db.advance(seconds=60)
    assert engine.poll() == []
    db.advance(seconds=30.5)
    assert engine.claim().id == id


def test_an_event_may_name_its_time(engine: Engine, db: Database) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=3)
    zulu, offset = engine.publish(
        {"at": at.isoformat().replace("+00:00", "Z")},
        {"at": (at - timedelta(hours=2)).replace(tzinfo=None).isoformat() + "-02:00"},
    )

    assert engine.event(zulu).next_retry_at == at
    assert engine.event(offset).next_retry_at == at
    assert db.placement() == {zulu: ["delayed"], offset: ["delayed"]}


def test_what_is_due_already_is_ready_at_once(engine: Engine, db: Database) -> None:
    now, past = engine.publish({"delay": 0}, {"at": "2001-02-03T04:05:06Z"})
    assert db.placement() == {now: ["ready"], past: ["ready"]}


def test_an_event_may_be_put_off_for_ten_years_and_no_longer(engine: Engine) -> None:
    [id] = engine.publish({"delay": 315_360_000})
    event = engine.event(id)
    assert event.next_retry_at - event.created_at == timedelta(days=3650)
    with refused("QU001", "ten years"):
        engine.publish({"delay": 315_360_000.1})


def test_a_priority_is_a_whole_number_from_0_to_9(engine: Engine) -> None:
    ids = engine.publish(*({"priority": priority} for priority in range(10)))
    assert [engine.event(id).priority for id in ids] == list(range(10))


def test_an_event_may_bring_its_own_limit_of_retries(engine: Engine) -> None:
    ids = engine.publish(*({"max_retries": limit} for limit in (0, 1, 1000)))
    assert [engine.event(id).max_retries for id in ids] == [0, 1, 1000]


# --- what is refused

WRONG: list[tuple[Any, str]] = [
    (None, "a JSON object"),
    ("text", "a JSON object"),
    (7, "a JSON object"),
    ([], "a JSON object"),
    ([{"type": "a"}], "a JSON object"),
    ({"typ": "a"}, 'no field "typ"'),
    ({"id": 7}, 'no field "id"'),
    ({"payload": 1, "Payload": 2}, 'no field "Payload"'),
    ({"namespace": "other"}, 'no field "namespace"'),
    ({"type": None}, "is a string"),
    ({"type": 7}, "is a string"),
    ({"type": ["a"]}, "is a string"),
    ({"type": ""}, "1 to 200 characters"),
    ({"type": "x" * 201}, "1 to 200 characters"),
    ({"type": "a,b"}, "no comma"),
    ({"type": "order.*"}, "asterisk"),
    ({"type": "a\nb"}, "control character"),
    ({"type": "a\x7f"}, "control character"),
    ({"tags": None}, "array of strings"),
    ({"tags": "a,b"}, "array of strings"),
    ({"tags": {"a": 1}}, "array of strings"),
    ({"tags": ["a", 1]}, "array of strings"),
    ({"tags": ["a", None]}, "array of strings"),
    ({"tags": [["a"]]}, "array of strings"),
    ({"tags": [["a", "b"]]}, "array of strings"),
    ({"tags": [[]]}, "array of strings"),
    ({"tags": [{}]}, "array of strings"),
    ({"tags": ["x"] * 51}, "at most 50 tags"),
    ({"tags": [""]}, "1 to 100 characters"),
    ({"tags": ["   "]}, "1 to 100 characters"),
    ({"tags": ["*"]}, r"is not \*"),
    ({"tags": [" * "]}, r"is not \*"),
    ({"tags": ["a", "b,c"]}, "no comma"),
    ({"tags": ["a\tb"]}, "no control character"),
    ({"tags": ["x" * 101]}, "1 to 100 characters"),
    ({"priority": -1}, "from 0"),
    ({"priority": 10}, "from 0"),
    ({"priority": 4.5}, "whole number"),
    ({"priority": "4"}, "whole number"),
    ({"priority": None}, "whole number"),
    ({"priority": [4]}, "whole number"),
    ({"delay": -0.001}, "number of seconds"),
    ({"delay": 1e-7}, "number of seconds"),
    ({"delay": "5"}, "number of seconds"),
    ({"delay": None}, "number of seconds"),
    ({"delay": [5]}, "number of seconds"),
    ({"delay": {"seconds": 5}}, "number of seconds"),
    ({"at": 1_900_000_000}, "is written with its zone"),
    ({"at": "tomorrow"}, "is written with its zone"),
    ({"at": "infinity"}, "is written with its zone"),
    ({"at": None}, "is written with its zone"),
    ({"at": "2030-01-31T12:00:00"}, "is written with its zone"),
    ({"at": "2030-01-31T12:00:00 Europe/Berlin"}, "is written with its zone"),
    ({"at": ["2030-01-31T12:00:00Z"]}, "is written with its zone"),
    ({"at": "2030-01-31T12:00:00Z", "delay": 5}, "not both"),
    ({"max_retries": -1}, "from 0 to 1000"),
    ({"max_retries": 1001}, "from 0 to 1000"),
    ({"max_retries": 2.5}, "whole number"),
    ({"max_retries": "3"}, "whole number"),
    ({"max_retries": None}, "whole number"),
    ({"max_retries": [3]}, "whole number"),
    ({"title": 7}, "are strings"),
    ({"description": None}, "are strings"),
    ({"version": 1.0}, "are strings"),
    ({"correlation_id": ["x"]}, "are strings"),
    ({"causation_id": {}}, "are strings"),
    ({"trace_id": True}, "are strings"),
    ({"producer": 1}, "are strings"),
    ({"source": "billing"}, "object of strings"),
    ({"source": {"id": 7}}, "object of strings"),
    ({"source": {"id": ["x"]}}, "object of strings"),
    ({"source": {"id": []}}, "object of strings"),
    ({"source": {"id": None}}, "object of strings"),
    ({"title": "x" * 70_000}, "64 KiB"),
    ({"headers": ["tenant"]}, "headers of an event are an object"),
    ({"headers": None}, "headers of an event are an object"),
    ({"headers": {"a": [10**400]}}, "outside the range of a double"),
    ({"headers": {"a": {"b": -(10**400)}}}, "outside the range of a double"),
    ({"headers": {"a": [10**308] * 1000}}, "64 KiB"),
    ({"headers": {"a": reduce(lambda deep, _: [deep], range(150), 1)}}, "150 deep"),
    ({"backoff": None}, "backoff"),
    ({"backoff": "fixed"}, "backoff"),
    ({"backoff": []}, "backoff"),
    ({"backoff": [{"kind": "fixed", "delay": 1}]}, "backoff"),
    ({"backoff": {}}, "backoff"),
    ({"backoff": {"kind": "fixed"}}, "delay of a backoff"),
    ({"backoff": {"delay": 5}}, "kind of a backoff"),
    ({"backoff": {"kind": "random", "delay": 5}}, "kind of a backoff"),
    ({"backoff": {"kind": ["fixed"], "delay": 5}}, "kind of a backoff"),
    ({"backoff": {"kind": "fixed", "delay": -1}}, "delay of a backoff"),
    ({"backoff": {"kind": "fixed", "delay": "5"}}, "delay of a backoff"),
    ({"backoff": {"kind": "fixed", "delay": [5]}}, "delay of a backoff"),
    ({"backoff": {"kind": "fixed", "delay": 31_536_001}}, "delay of a backoff"),
    ({"backoff": {"kind": "fixed", "delay": 5, "max_delay": [9]}}, "max_delay"),
    ({"backoff": {"kind": "fixed", "delay": 5, "max_delay": None}}, "max_delay"),
    ({"backoff": {"kind": "fixed", "delay": 5, "jitter": 1.1}}, "jitter"),
    ({"backoff": {"kind": "fixed", "delay": 5, "jitter": [0.5]}}, "jitter"),
    ({"backoff": {"kind": "fixed", "delay": 5, "factor": 2}}, "backoff"),
]


@requirement("G18")
def test_what_is_wrong_is_refused_and_said(engine: Engine, db: Database) -> None:
    before = contents(db)
    accepted = []
    for event, message in WRONG:
        try:
            with refused("QU001", message):
                engine.publish(event)
        except (AssertionError, pytest.fail.Exception) as failure:
            accepted.append(f"{str(event)[:80]}: {failure}"[:300])
    assert not accepted, "\n".join(accepted)
    assert differences(before, contents(db)) == set()


def test_what_is_no_array_of_events_is_refused(engine: Engine, db: Database) -> None:
    for events in (None, "null", '"text"', "7", "true"):
        with refused("QU001", "array of events"):
            engine.publish_json(events)
    assert db.placement() == {}


@requirement("G18")
def test_one_wrong_event_refuses_its_batch_and_is_named(engine: Engine, db: Database) -> None:
    before = contents(db)
    with refused("QU001") as caught:
        engine.publish({"payload": 1}, {"payload": 2}, {"priority": 11}, {"payload": 4})

    assert caught.value.diag.message_detail == "event 3 of the batch"
    assert differences(before, contents(db)) == set()


def test_the_place_of_a_wrong_event_counts_from_one(engine: Engine) -> None:
    for place in (1, 2, 1000):
        events: list[Any] = [{"payload": n} for n in range(1000)]
        events[place - 1] = {"unknown": True}
        with refused("QU001") as caught:
            engine.publish(*events)
        assert caught.value.diag.message_detail == f"event {place} of the batch"


def test_the_first_wrong_event_of_several_is_named(engine: Engine) -> None:
    with refused("QU001", "priority") as caught:
        engine.publish({}, {"priority": 11}, {"type": ""})
    assert caught.value.diag.message_detail == "event 2 of the batch"


def test_a_batch_that_ends_in_a_null_is_refused(engine: Engine, db: Database) -> None:
    with refused("QU001") as caught:
        engine.publish({"type": "a", "payload": 1}, None)
    assert caught.value.diag.message_detail == "event 2 of the batch"
    assert db.placement() == {}


def test_an_unknown_namespace_is_refused(engine: Engine) -> None:
    for namespace in ("nowhere", "", None):
        with refused("QU010", "there is no namespace"):
            engine.call("publish", namespace=namespace, events="{}")


# --- inside the caller's transaction


@requirement("G3")
def test_nothing_is_visible_before_the_commit(db: Database, engine: Engine) -> None:
    publisher = Engine(db)
    for size in (1, 2, 50):
        before = contents(db)
        with publisher.connection.transaction():
            ids = publisher.publish(*({"type": "a", "payload": n} for n in range(size)))
            assert engine.poll(max_events=100) == []
            assert differences(before, contents(db)) == set()
            with refused("QU012"):
                engine.event(ids[0])

        assert [claimed.id for claimed in engine.poll(max_events=100)] == ids


@requirement("G3")
def test_nothing_is_left_after_a_rollback(db: Database, engine: Engine) -> None:
    before = contents(db)
    publisher = Engine(db)
    with publisher.connection.transaction(force_rollback=True):
        publisher.publish({"type": "a", "payload": 1})
        publisher.publish({"delay": 5}, {"tags": ["x"]})

    assert differences(before, contents(db)) == set()
    assert engine.poll() == []


@requirement("G3")
def test_an_event_commits_together_with_the_callers_rows(db: Database, engine: Engine) -> None:
    db.sql("create table orders (id int primary key)")
    with engine.connection.transaction(force_rollback=True):
        engine.connection.execute("insert into orders values (1)")
        engine.publish({"payload": 1})
    with engine.connection.transaction():
        engine.connection.execute("insert into orders values (2)")
        engine.publish({"payload": 2})

    assert db.sql("select id from orders") == [(2,)]
    assert db.sql("select payload from headrace.events") == [(2,)]


@requirement("G3")
def test_a_refused_batch_inside_a_savepoint_leaves_the_rest_of_the_transaction(
    db: Database, engine: Engine
) -> None:
    with engine.connection.transaction():
        engine.publish({"payload": "before"})
        with refused("QU001"), engine.connection.transaction():
            engine.publish({"payload": "lost"}, {"priority": 11})
        engine.publish({"payload": "after"})

    assert db.sql("select payload from headrace.events order by id") == [("before",), ("after",)]


@requirement("G3")
def test_publish_works_at_every_isolation_level(db: Database, engine: Engine) -> None:
    for level in ("repeatable read", "serializable"):
        with engine.connection.transaction():
            engine.connection.execute(f"set transaction isolation level {level}")
            ids = engine.publish({"payload": 1}) + engine.publish({}, {"delay": 5})
        assert [db.placement()[id] for id in ids] == [["ready"], ["ready"], ["delayed"]]


def test_a_trigger_may_publish(db: Database, engine: Engine) -> None:
    db.sql("""
        create table orders (id int primary key, doc jsonb);
        create function tell() returns trigger language plpgsql as $$
        begin
            perform headrace.publish('default', jsonb_build_object('type', 'order.created', 'payload', new.doc));
            return new;
        end $$;
        create trigger tell after insert on orders for each row execute function tell();
    """)
    db.sql("""insert into orders select n, jsonb_build_object('n', n, 'text', repeat('x', 100000))
              from generate_series(1, 3) n""")
    assert [claimed.payload["n"] for claimed in engine.poll(max_events=10)] == [1, 2, 3]


# --- counting and waking


def test_what_is_published_is_counted(db: Database, engine: Engine) -> None:
    engine.publish({"payload": 1})
    engine.publish({}, {"delay": 5}, {"tags": ["x"]})
    assert engine.stats().published == 4


ONE = '{"type": "a", "payload": 1}'
MANY = '[{"type": "a"}, {"type": "b", "tags": ["x"]}]'


@requirement("G19")
@pytest.mark.parametrize("events", [ONE, MANY])
def test_publish_wakes_a_sleeping_worker_with_an_empty_message(
    db: Database, engine: Engine, events: str
) -> None:
    listener = Listener(db)
    listener.fall_asleep()
    engine.publish_json(events)
    assert listener.heard() == [""]


@requirement("G19")
@pytest.mark.parametrize("events", [ONE, MANY])
def test_publish_notifies_nobody_while_nobody_sleeps(
    db: Database, engine: Engine, events: str
) -> None:
    listener = Listener(db)
    engine.publish_json(events)
    assert listener.heard() == []

    listener.fall_asleep()
    engine.publish_json(events)
    assert listener.heard() == [""]

    listener.wake_up()
    engine.publish_json(events)
    assert listener.heard() == []


@requirement("G19")
@pytest.mark.parametrize("events", [ONE, MANY])
def test_an_old_transaction_too_notifies_nobody_while_nobody_sleeps(
    db: Database, engine: Engine, events: str
) -> None:
    """Notifications make commits wait for each other; whoever falls asleep looks again instead."""
    listener = Listener(db)
    with engine.connection.transaction():
        engine.connection.execute("select pg_sleep(0.02)")  # as long as a web request takes
        engine.publish_json(events)
        listener.fall_asleep()
    assert listener.heard() == []


@requirement("G3", "G19")
def test_a_publish_that_is_rolled_back_wakes_nobody(db: Database, engine: Engine) -> None:
    listener = Listener(db)
    listener.fall_asleep()
    with engine.connection.transaction(force_rollback=True):
        engine.publish_json(ONE)
    assert listener.heard() == []


@requirement("G19", "G16")
def test_publish_wakes_only_the_workers_of_its_own_queue(db: Database, engine: Engine) -> None:
    engine.call("create_namespace", namespace="other")
    here, there = Listener(db), Listener(db, "other")
    here.fall_asleep()
    there.fall_asleep()

    engine.publish_json(ONE)
    assert (here.heard(), there.heard()) == ([""], [])
    Engine(db, "other").publish_json(ONE)
    assert (here.heard(), there.heard()) == ([], [""])


def test_members_of_a_group_do_not_carry_each_others_payloads(db: Database) -> None:
    """Else what a batch of two types costs would grow with the square of its length."""
    group = {"payloads": [{"n": number, "text": "x" * 100} for number in range(50)]}
    document = [{"type": "a", **group}, {"type": "b", **group}, {"type": "c", "payload": {"n": 1}}]
    rows = db.sql("select event, payload from headrace._batch_items(%s)", [json.dumps(document)])
    assert len(rows) == 101
    assert {json.dumps(event) for event, _ in rows} == {f'{{"type": "{type}"}}' for type in "abc"}
    assert [payload["n"] for _, payload in rows] == [*range(50), *range(50), 1]


@pytest.mark.parametrize("type", [" a", "a ", "\ta", " "])
def test_a_type_has_no_blank_at_its_ends(db: Database, type: str) -> None:
    """Nobody would see why a worker that asks for the type does not get it."""
    engine = Engine(db)
    for function, given in {
        "publish": {"events": json.dumps([{"type": type}])},
        "publish_one": {"type": type, "payload": Jsonb(1)},
        "publish_many": {"type": type, "payloads": Jsonb([1, 2])},
        "create_queue": {"queue": "other", "types": [type]},
    }.items():
        with refused("QU001"):
            engine.call(function, namespace="default", **given)
    engine.publish({"type": "a b"})
