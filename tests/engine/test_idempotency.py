"""Idempotency keys: whoever is not sure may publish again, and there is one event."""

import json
from typing import Any

import psycopg
import pytest
from psycopg.errors import SerializationFailure
from psycopg.types.json import Jsonb

from headrace.errors import AlreadyEnded, IdempotencyConflict
from tests.database import Database
from tests.engine.functions_helpers import Engine, contents, differences, refused
from tests.engine.races_helpers import (
    REPEATABLE_READ,
    SERIALIZABLE,
    Background,
    Session,
    blocked,
)
from tests.places import check_places
from tests.requirements import requirement

pytestmark = requirement("G2")


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def event(once: Any = "once", **fields: Any) -> dict[str, Any]:
    return {"type": "order", "payload": {"a": 1, "b": [2]}, "idempotency_key": once, **fields}


def publish(engine: Engine, *events: Any, namespace: str = "default") -> Any:
    [answer] = engine.call("publish", namespace=namespace, events=json.dumps(events))
    return answer


def count(db: Database) -> int:
    return db.sql("select count(*) from headrace.events")[0][0]


class TestAgain:
    def test_the_same_event_has_the_same_id_and_is_stored_once(
        self, engine: Engine, db: Database
    ) -> None:
        first = publish(engine, event())
        before = contents(db)
        again = publish(engine, event())
        assert (again.ids, again.created_at, again.repeated) == (first.ids, first.created_at, [1])
        assert first.repeated is None
        assert differences(before, contents(db)) == set()

    def test_it_is_the_same_event_though_it_has_ended_since(self, engine: Engine) -> None:
        first = publish(engine, event())
        engine.end("complete", engine.claim())
        assert publish(engine, event()).ids == first.ids
        assert engine.poll() == []

    @pytest.mark.parametrize(
        "again",
        [
            {"payload": {"b": [2], "a": 1}},
            {"tags": ["y", "x"]},
            {"tags": ["x", "y", "x"]},
            {"priority": 1},
            {"delay": 60},
            {"title": "another"},
            {"max_retries": 9},
        ],
        ids=str,
    )
    def test_what_does_not_matter_may_differ(self, engine: Engine, again: dict[str, Any]) -> None:
        first = publish(engine, event(tags=["x", "y"]))
        assert publish(engine, event(**{"tags": ["x", "y"], **again})).ids == first.ids

    @pytest.mark.parametrize(
        "other",
        [
            {"payload": {"a": 1, "b": [3]}},
            {"payload": {"a": 1}},
            {"payload": {"a": "1", "b": [2]}},
            {"type": "invoice"},
            {"tags": ["x"]},
            {"key": "k"},
        ],
        ids=str,
    )
    def test_another_event_is_refused_and_the_first_named(
        self, engine: Engine, db: Database, other: dict[str, Any]
    ) -> None:
        [id] = publish(engine, event()).ids
        before = contents(db)
        with refused("QU022", match=f"'once' is that of event {id}") as caught:
            publish(engine, {"type": "fine"}, event(**other))
        assert (
            caught.value.diag.message_detail
            == f"event 2 of the batch; the key is that of event {id}"
        )
        assert differences(before, contents(db)) == set()

    def test_no_payload_is_an_empty_one(self, engine: Engine) -> None:
        first = publish(engine, {"idempotency_key": "k"})
        assert (
            publish(engine, {"idempotency_key": "k", "payload": {}, "type": "event"}).ids
            == first.ids
        )
        with refused("QU022"):
            publish(engine, {"idempotency_key": "k", "payload": None})

    def test_parts_are_not_mixed_up(self, engine: Engine) -> None:
        publish(engine, event("a", key="x", payload="y"))
        with refused("QU022"):
            publish(engine, event("a", key="y", payload="x"))

    def test_keys_are_of_their_namespace(self, engine: Engine, db: Database) -> None:
        db.sql(
            "select headrace.create_namespace('else') where not exists (select from headrace.namespaces where name = 'else')"
        )
        first = publish(engine, event())
        other = publish(engine, event(payload=0), namespace="else")
        assert first.ids != other.ids
        assert publish(engine, event()).ids == first.ids
        assert publish(engine, event(payload=0), namespace="else").ids == other.ids

    def test_a_key_tells_capitals_and_blanks_apart(self, engine: Engine, db: Database) -> None:
        publish(engine, *[event(key) for key in ("a", "A", "a ", " a", "ä", "x" * 200)])
        assert count(db) == 6

    @pytest.mark.parametrize("key", ["", "x" * 201, 1, [], {}])
    def test_what_is_no_key_is_refused(self, engine: Engine, key: Any) -> None:
        with refused("QU001", match="idempotency key"):
            publish(engine, event(key))

    def test_an_event_of_a_full_queue_is_known_again(self, engine: Engine, db: Database) -> None:
        db.sql("""select headrace.change_queue('default', 'main', '{"max_queue_depth": 1}')""")
        try:
            first = publish(engine, event())
            assert publish(engine, event()).ids == first.ids
            with refused("QU050"):
                publish(engine, event("new"))
            assert db.sql("select key from headrace.idempotency") == [("once",)]
        finally:
            db.sql(
                """select headrace.change_queue('default', 'main', '{"max_queue_depth": null}')"""
            )

    def test_an_erased_event_leaves_no_trace_of_its_key(self, engine: Engine, db: Database) -> None:
        [id, other] = publish(engine, event(), event("other")).ids
        db.sql("select headrace.erase('default', %s)", [id])
        assert db.sql("select key, event from headrace.idempotency") == [("other", other)]

    def test_with_an_ordering_key_and_a_delay_it_is_queued_once(
        self, engine: Engine, db: Database
    ) -> None:
        for _ in range(2):
            publish(engine, event("a", key="k"), event("b", key="k", delay=10))
        check_places(db.sql)
        assert db.sql(
            "select (select count(*) from headrace.keyed), (select count(*) from headrace.delayed)"
        ) == [(1, 1)]


class TestBatches:
    def test_twice_in_one_batch_is_one_event(self, engine: Engine, db: Database) -> None:
        answer = publish(engine, event(), event("x"), event(), event())
        a, b = answer.ids[:2]
        assert (answer.ids, answer.repeated) == ([a, b, a, a], [3, 4])
        assert a < b
        assert count(db) == 2
        check_places(db.sql)

    def test_twice_and_not_the_same_is_refused(self, engine: Engine, db: Database) -> None:
        with refused("QU022") as caught:
            publish(engine, event(), event(payload=0))
        assert "event 2 of the batch" in str(caught.value.diag.message_detail)
        assert count(db) == 0

    def test_some_are_known_some_are_new_and_some_have_no_key(
        self, engine: Engine, db: Database
    ) -> None:
        known = publish(engine, event("b"), event("d")).ids
        batch = [
            event("a"),
            event("b"),
            {"type": "order"},
            event("c"),
            event("d"),
            {"type": "order"},
        ]
        db.advance(seconds=5)
        answer = publish(engine, *batch)
        assert answer.repeated == [2, 5]
        assert [answer.ids[1], answer.ids[4]] == known
        fresh = [id for id in answer.ids if id not in known]
        assert fresh == sorted(set(fresh))
        assert len(fresh) == 4
        assert [claim.id for claim in engine.poll(10)] == known + fresh
        check_places(db.sql)

    def test_created_at_is_the_first_ones(self, engine: Engine, db: Database) -> None:
        first = publish(engine, event("b"))
        db.advance(seconds=60)
        assert publish(engine, event("b"), event("new")).created_at == first.created_at
        assert publish(engine, event("newer"), event("b")).created_at > first.created_at

    def test_a_thousand_of_mixed_heads_are_in_their_order(
        self, engine: Engine, db: Database
    ) -> None:
        batch = [event(f"k{n}", type=f"t{n % 5}", payload=n) for n in range(1000)]
        ids = publish(engine, *batch).ids
        assert ids == sorted(ids)
        assert [
            row for (row,) in db.sql("select payload::int from headrace.events order by id")
        ] == list(range(1000))
        assert publish(engine, *reversed(batch)).ids == ids[::-1]
        check_places(db.sql)

    def test_groups_have_none(self, engine: Engine, db: Database) -> None:
        for events in (
            [{"payloads": [1], "idempotency_key": "k"}],
            [{"type": "order"}, {"payloads": [1], "idempotency_key": "k"}],
        ):
            with refused("QU001", match="without an idempotency key"):
                publish(engine, *events)
        assert count(db) == 0


class TestTime:
    def test_a_key_is_kept_for_seven_days(self, engine: Engine, db: Database) -> None:
        first = publish(engine, event())
        db.advance(days=6.9)
        engine.tick(upkeep=True)
        assert publish(engine, event()).ids == first.ids
        db.advance(days=0.2)
        assert publish(engine, event()).ids != first.ids

    def test_an_old_key_may_be_of_another_event(self, engine: Engine, db: Database) -> None:
        publish(engine, event())
        db.advance(days=8)
        second = publish(engine, event(payload=0))
        assert publish(engine, event(payload=0)).ids == second.ids

    def test_upkeep_forgets_what_is_old(self, engine: Engine, db: Database) -> None:
        publish(engine, event("old"))
        db.advance(days=5)
        publish(engine, event("new"))
        db.advance(days=3)
        engine.tick(upkeep=True)
        assert db.sql("select key from headrace.idempotency") == [("new",)]

    def test_it_does_so_in_steps(self, engine: Engine, db: Database) -> None:
        db.sql(
            "insert into headrace.idempotency select 1, 'k' || n, n, headrace._now() - interval '8 days', ''"
            " from generate_series(1, 25) n"
        )
        took = [db.sql("select headrace._forget_keys(10)")[0][0] for _ in range(4)]
        assert took == [True, True, False, False]
        assert db.sql("select count(*) from headrace.idempotency") == [(0,)]

    def test_a_tick_says_that_there_is_more_to_forget(self, engine: Engine, db: Database) -> None:
        while engine.tick().more:
            pass
        db.sql("delete from headrace.upkeep")
        db.sql(
            "insert into headrace.idempotency select 1, 'k' || n, n, headrace._now() - interval '8 days', ''"
            " from generate_series(1, 15000) n"
        )
        assert engine.tick().more
        assert db.sql("select count(*) from headrace.idempotency") == [(5000,)]
        assert not engine.tick().more
        assert db.sql("select count(*) from headrace.idempotency") == [(0,)]

    def test_how_long_is_a_setting(self, engine: Engine, db: Database) -> None:
        db.sql("select headrace.configure('idempotency_retention', '1 day')")
        first = publish(engine, event())
        db.advance(hours=25)
        assert publish(engine, event()).ids != first.ids

    def test_what_is_being_published_again_is_not_forgotten_nor_waited_for(
        self, engine: Engine, db: Database
    ) -> None:
        publish(engine, event())
        db.advance(days=8)
        other = Session(db)
        other.begin()
        [(ids,)] = other.sql("select ids from headrace.publish('default', %s)", [Jsonb([event()])])
        engine.tick(upkeep=True)
        other.commit()
        assert publish(engine, event()).ids == ids


class TestAtOnce:
    def test_fifty_at_once_are_one_event(self, db: Database) -> None:
        sessions = [Session(db) for _ in range(50)]
        published = [Background(session.publish, **event()) for session in sessions]
        assert len({tuple(one.result()) for one in published}) == 1
        assert count(db) == 1
        check_places(db.sql)

    def test_who_comes_second_waits_and_gets_the_firsts_id(self, db: Database) -> None:
        first, second = Session(db), Session(db)
        first.begin()
        ids = first.publish(**event())
        waiting = blocked(db, second, second.publish, **event())
        first.commit()
        assert waiting.result() == ids

    def test_who_rolls_back_leaves_the_key_to_who_waits(self, db: Database) -> None:
        first, second = Session(db), Session(db)
        first.begin()
        ids = first.publish(**event())
        waiting = blocked(db, second, second.publish, **event(payload=0))
        first.rollback()
        assert waiting.result() != ids
        assert count(db) == 1

    def test_nobody_waits_for_another_key(self, db: Database) -> None:
        first, second = Session(db), Session(db).hurry()
        first.begin()
        first.publish(**event("a"))
        assert len(second.publish(**event("b"))) == 1
        assert len(second.publish()) == 1
        first.commit()

    @pytest.mark.parametrize("aged", [False, True])
    def test_batches_of_the_same_keys_in_other_orders_do_not_deadlock(
        self, db: Database, aged: bool
    ) -> None:
        keys = [f"k{n}" for n in range(40)]
        if aged:
            Engine(db).publish(*[event(key) for key in keys])
            db.advance(days=8)

        def publish_all(session: Session, order: list[str]) -> dict[str, int]:
            batch = [event(key) for key in order]
            [(ids,)] = session.sql(
                "select ids from headrace.publish('default', %s)", [Jsonb(batch)]
            )
            return dict(zip(order, ids, strict=True))

        for turn in range(5):
            if turn:
                db.advance(days=8 if aged else 0)
            ones = [
                Background(publish_all, Session(db), order)
                for order in (keys, keys[::-1], keys[20:] + keys[:20])
            ]
            a, b, c = [one.result() for one in ones]
            assert a == b == c

    @pytest.mark.parametrize("isolation", [REPEATABLE_READ, SERIALIZABLE])
    def test_above_read_committed_a_new_key_of_another_is_told_to_be_tried_again(
        self, db: Database, isolation: str
    ) -> None:
        first, second = Session(db), Session(db)
        second.begin(isolation)
        second.sql("select count(*) from headrace.events")  # a snapshot of before
        ids = first.publish(**event())
        with pytest.raises(SerializationFailure):
            second.publish(**event())
        second.rollback()
        second.begin(isolation)
        assert second.publish(**event()) == ids
        second.commit()

    def test_within_one_transaction_it_is_known_at_once(self, db: Database) -> None:
        session = Session(db)
        session.begin(REPEATABLE_READ)
        assert session.publish(**event()) == session.publish(**event())
        session.rollback()
        assert count(db) == 0


class TestClients:
    def test_a_repeat_is_told(self, db: Database) -> None:
        queue = db.queue()
        first = queue.publish("order", {"a": 1}, idempotency_key="k", key="o")
        again = queue.publish("order", {"a": 1}, idempotency_key="k", key="o")
        assert (again.id, again.repeated, again.created_at) == (first.id, True, first.created_at)
        assert (first.repeated, first.key) == (False, "o")

    @pytest.mark.anyio
    async def test_so_it_is_by_the_other_client(self, db: Database) -> None:
        async with db.async_queue() as queue:
            first = await queue.publish("order", {"a": 1}, idempotency_key="k")
            again = await queue.publish("order", {"a": 1}, idempotency_key="k")
            assert (again.id, again.repeated) == (first.id, True)
            with pytest.raises(IdempotencyConflict) as caught:
                await queue.publish("order", {"a": 2}, idempotency_key="k")
            assert caught.value.event_id == first.id

    @pytest.mark.parametrize(
        "key", ["k", "the key is that of event 1", "is that of event 77", "k'é"]
    )
    def test_a_conflict_names_the_first_event(self, db: Database, key: str) -> None:
        queue = db.queue()
        for _ in range(3):
            queue.publish()
        first = queue.publish("order", idempotency_key=key)
        with pytest.raises(IdempotencyConflict) as caught:
            queue.publish("invoice", idempotency_key=key)
        assert caught.value.event_id == first.id

    def test_another_conflict_is_still_another_error(self, db: Database) -> None:
        queue = db.queue()
        event = queue.publish()
        queue.complete(queue.poll())
        with pytest.raises(AlreadyEnded):
            queue.cancel(event.id)

    def test_many_are_published_once(self, db: Database) -> None:
        queue = db.queue()
        events = [{"type": "order", "payload": n, "idempotency_key": f"k{n}"} for n in range(2500)]
        ids = queue.publish_many(events)
        assert queue.publish_many(events) == ids
        assert len(set(ids)) == 2500

    def test_who_is_refused_in_a_large_batch_is_named(self, db: Database) -> None:
        queue = db.queue()
        first = queue.publish("order", 0, idempotency_key="k1500")
        events = [{"type": "order", "payload": n, "idempotency_key": f"k{n}"} for n in range(2500)]
        with pytest.raises(IdempotencyConflict) as caught:
            queue.publish_many(events)
        assert (caught.value.event_id, caught.value.position) == (first.id, 1500)
        assert db.sql("select count(*) from headrace.events") == [(1,)]

    def test_a_connection_that_was_lost_is_no_reason_for_two(self, db: Database) -> None:
        connection = db.connect()
        queue = db.queue()
        first = queue.publish("order", idempotency_key="k", connection=connection)
        connection.close()  # the reply may have been lost
        assert queue.publish("order", idempotency_key="k").id == first.id

    def test_who_may_publish_may_use_keys(self, db: Database) -> None:
        db.sql("drop role if exists a_publisher")
        db.sql("create role a_publisher login in role headrace_publisher")
        try:
            connection = db.connect(user="a_publisher")
            for _ in range(2):
                connection.execute(
                    "select headrace.publish('default', %s)", [Jsonb(event(key="o"))]
                )
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute("select from headrace.idempotency")
            connection.close()
        finally:
            db.sql("drop role a_publisher")
