"""One stream, several queues: each gets every event it takes once, and lives its own life with it."""

import itertools
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.errors import SerializationFailure
from psycopg.types.json import Jsonb

from tests.database import STRIDE, Database
from tests.engine.functions_helpers import Engine, refused
from tests.engine.races_helpers import (
    ISOLATION_LEVELS,
    READ_COMMITTED,
    REPEATABLE_READ,
    Background,
    Session,
)
from tests.requirements import requirement


@pytest.fixture
def engine(db: Database) -> Engine:
    return Engine(db)


def create(engine: Engine, queue: str, **arguments: Any) -> None:
    engine.call("create_queue", namespace="default", queue=queue, **arguments)


def tick(engine: Engine) -> None:
    while engine.tick().more:
        pass


def drain(engine: Engine, queue: str) -> list[int]:
    """The events of a queue, completed."""
    done: list[int] = []
    while claims := engine.poll(max_events=100, queue=queue):
        done += [claim.id for claim in claims]
        engine.call("finish", namespace="default", queue=queue, events=[claim.id for claim in claims],
                    attempts=[claim.attempt for claim in claims], leases=[claim.lease for claim in claims])  # fmt: skip
    return done


STREAM = [
    {"type": type, "tags": list(tags), "payload": n}
    for n, (type, tags) in enumerate(
        itertools.product(
            ["order.paid", "order.sent", "invoice", "orderly"], ["", "a", "b", "ab"], repeat=1
        )
    )
] * 5


@requirement("PG-1", "PG-2")
def test_each_queue_gets_every_event_it_takes_exactly_once(engine: Engine) -> None:
    filters: dict[str, Callable[[Any], bool]] = {
        "main": lambda event: True,
        "orders": lambda event: event["type"].startswith("order."),
        "ab": lambda event: {"a", "b"} <= set(event["tags"]),
        "some": lambda event: event["type"] == "invoice" and bool({"a", "x"} & set(event["tags"])),
    }
    create(engine, "orders", types=["order.*"])
    create(engine, "ab", tags=["b", "a"], all_tags=True)
    create(engine, "some", types=["invoice", "nothing"], tags=["a", "x"])
    ids = [id for event in STREAM[:20] for id in engine.publish(event)]
    ids += engine.publish(*STREAM[20:])
    for queue, takes in filters.items():
        wanted = [id for id, event in zip(ids, STREAM, strict=True) if takes(event)]
        assert sorted(drain(engine, queue)) == wanted
        assert 0 < len(wanted) <= len(ids)


@requirement("PG-2")
def test_each_has_its_own_attempts_retries_and_dead_letters(engine: Engine, db: Database) -> None:
    create(engine, "strict", settings='{"max_retries": 1}')
    create(
        engine, "patient", settings='{"max_retries": 5, "backoff": {"kind": "fixed", "delay": 0}}'
    )
    [id] = engine.publish({"type": "a"})
    for _ in range(3):
        engine.end("fail", engine.claim(queue="patient"), queue="patient")
    engine.end("fail", engine.claim(queue="strict"), queue="strict")
    engine.end("complete", engine.claim())

    def event(queue: str) -> tuple[str, int, int]:
        [row] = engine.call("event", namespace="default", event_id=id, queue=queue)
        return row.status, row.attempts, row.retry_count

    assert event("main") == ("COMPLETED", 1, 0)
    assert event("strict") == ("FAILED", 1, 1)
    assert event("patient") == ("PENDING", 3, 3)
    assert db.sql(
        "select q.name from headrace.dead_letters d join headrace.queues q on q.id = d.queue"
    ) == [("strict",)]


def test_what_no_queue_takes_is_kept_all_the_same(engine: Engine, db: Database) -> None:
    engine.call("change_queue", namespace="default", queue="main", settings='{"takes": false}')
    [id] = engine.publish({})
    ids = engine.publish({}, {})
    assert db.sql("select count(*) from headrace.deliveries") == [(0,)]
    create(engine, "late", after=0)
    tick(engine)
    assert drain(engine, "late") == [id, *ids]


def test_main_is_switched_off_and_on(engine: Engine) -> None:
    create(engine, "other")
    before = engine.publish({})
    for takes in ("false", "true"):
        engine.call(
            "change_queue", namespace="default", queue="main", settings=f'{{"takes": {takes}}}'
        )
        after = engine.publish({})
    assert drain(engine, "main") == before + after
    assert len(drain(engine, "other")) == 3


def test_a_changed_filter_holds_for_what_comes(engine: Engine) -> None:
    create(engine, "one", types=["a"])
    first = engine.publish({"type": "a"})
    engine.publish({"type": "b"})
    engine.call("change_queue", namespace="default", queue="one", settings='{"types": ["b"]}')
    engine.publish({"type": "a"})
    second = engine.publish({"type": "b"})
    assert sorted(drain(engine, "one")) == first + second


class TestStates:
    def test_a_paused_queue_takes_events_and_gives_none(self, engine: Engine) -> None:
        create(engine, "other")
        engine.publish({})
        engine.call("pause", namespace="default")
        ids = engine.publish({})
        assert engine.poll(max_events=5) == []
        assert len(engine.poll(max_events=5, queue="other")) == 2
        engine.call("resume", namespace="default")
        assert len(engine.poll(max_events=5)) == len(ids) + 1

    def test_a_draining_queue_takes_none_and_gives_what_it_has(self, engine: Engine) -> None:
        create(engine, "orders", types=["order.*"])
        engine.publish({"type": "order.paid"})
        engine.call("drain", namespace="default", queue="orders")
        for events in ([{"type": "order.sent"}], [{"type": "a"}, {"type": "order.sent"}]):
            with refused("QU051", "'orders' is draining"):
                engine.publish(*events)
        engine.publish({"type": "a"})  # which it does not take
        assert len(drain(engine, "orders")) == 1
        assert len(drain(engine, "main")) == 2  # what was refused is nowhere
        engine.tick()
        engine.publish({"type": "order.sent"})
        assert engine.poll(queue="orders") == []  # it is paused now

    def test_the_batch_size_caps_a_claim(self, engine: Engine) -> None:
        engine.publish(*[{}] * 40)
        engine.call("change_queue", namespace="default", queue="main", settings='{"batch_size": 7}')
        assert [len(engine.poll(max_events=n)) for n in (1000, 7, 6)] == [7, 7, 6]
        assert len(engine.poll(max_events=1000, each=True)) == 7


class TestNewQueuesAndNewRoutes:
    """The one who makes a queue does not see the new route, its publisher not the new queue."""

    @pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
    @pytest.mark.parametrize("first", ["queue", "route"])
    def test_a_new_route_beside_a_new_queue(
        self, engine: Engine, db: Database, isolation: str, first: str
    ) -> None:
        maker, publisher = Session(db).hurry(), Session(db).hurry()
        maker.begin()
        publisher.begin(isolation)
        maker.sql("select headrace.create_queue('default', 'late', after => 0)")
        old = publisher.publish(type="new.route")
        for session in (maker, publisher) if first == "queue" else (publisher, maker):
            session.commit()
        new = publisher.publish(type="new.route")
        tick(engine)
        assert drain(engine, "late") == old + new
        assert drain(engine, "main") == old + new

    @pytest.mark.parametrize("isolation", [READ_COMMITTED, REPEATABLE_READ])
    def test_a_queue_that_begins_now_gets_what_is_published_by_whoever_begins_later(
        self, engine: Engine, db: Database, isolation: str
    ) -> None:
        early, late = Session(db), Session(db)
        early.begin(isolation)
        create(engine, "late")
        late.begin(isolation)
        late_ids = late.publish(type="new.route")
        early_ids = early.publish(type="new.route")
        late.commit()
        early.commit()
        known = isolation == READ_COMMITTED  # it looks anew with each statement
        assert sorted(drain(engine, "late")) == sorted(late_ids + (early_ids if known else []))

    def test_nobody_waits_for_an_open_publisher_of_the_same_new_route(self, db: Database) -> None:
        first, second = Session(db), Session(db).hurry()
        first.begin()
        first.publish(type="new.route")
        second.publish(type="new.route")
        second.publish(2, type="new.route", tags=["a"])
        first.commit()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("queues", [2, pytest.param(6, marks=pytest.mark.rest)])
def test_nothing_is_missed_or_doubled_while_everybody_publishes(
    engine: Engine, db: Database, queues: int
) -> None:
    """Queues are made from the past again and again beside publishers of all kinds; each has everything in the end."""
    over = threading.Event()

    def publish(isolation: str) -> list[int]:
        session, ids, numbers = Session(db), [], itertools.count()
        while not over.is_set():
            n = next(numbers)
            try:
                session.begin(isolation)
                mine = [session.publish(n % 20 + 1, type=f"t{n % 50}") for _ in range(n % 3 + 1)]
                session.commit()
                ids += itertools.chain(*mine)
            except SerializationFailure:
                session.rollback()
        return ids

    publishers = [Background(publish, isolation) for isolation in ISOLATION_LEVELS]
    names = [f"late{n}" for n in range(queues)]
    for name in names:
        [(so_far,)] = db.sql("select last_value from headrace.ids")
        enough = so_far + 500 * STRIDE
        db.wait_for(lambda: db.sql("select last_value from headrace.ids") > [(enough,)])  # noqa: B023
        create(engine, name, after=0)
        engine.tick()
    over.set()
    ids = sorted(id for publisher in publishers for id in publisher.result())
    tick(engine)
    assert db.sql("select count(*) from headrace.chores") == [(0,)]
    for name in names:
        assert sorted(drain(engine, name)) == ids
    assert Counter(drain(engine, "main")) == Counter(ids)


@requirement("G15")
@pytest.mark.parametrize("size", [1, 10])
def test_a_limit_is_passed_by_a_twentieth_and_a_call_of_each_publisher_at_most(
    engine: Engine, db: Database, size: int
) -> None:
    engine.call(
        "change_queue", namespace="default", queue="main", settings='{"max_queue_depth": 1000}'
    )

    def publish() -> int:
        session, published = Session(db), 0
        events = Jsonb([{"type": "a"}] * size)
        try:
            while True:
                session.sql("select headrace.publish('default', %s)", [events])
                published += size
        except psycopg.Error as error:
            assert error.sqlstate == "QU050"  # noqa: PT017
            return published

    publishers = [Background(publish) for _ in range(8)]
    published = sum(publisher.result() for publisher in publishers)
    assert db.sql("select count(*) from headrace.deliveries") == [(published,)]
    assert 1000 <= published <= 1050 + 8 * size
