"""The database-backed event system (004), in its own order: nodes that emit, consume, schedule and end.

A failure is an end there: max_retries=0. Its CoreSystem is the arguments of Node.
"""

import asyncio
import logging
import time
from datetime import datetime, timedelta
from typing import Any

import pytest
from psycopg.conninfo import make_conninfo

import headrace
from headrace import Claimed
from headrace.install.migrate import migrate
from tests.database import Database
from tests.node.nodes import OUTLASTS, node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("PG-14", "PG-16", "PG-20", "PG-22", "PG-27", "PG-30")
async def test_the_usage_example(db: Database) -> None:
    db.sql("create table user_events (user_id text, event_id bigint)")

    # Initialize system, register node
    node = headrace.Node(
        "api-server-1",
        dsn=db.dsn,
        namespace="myapp",
        display_name="API Server",
        metadata={"role": "producer"},
    )

    # Register event handler
    @node.on_event("user.created")
    async def remember(event: Claimed, connection: Any) -> None:
        await connection.execute(
            "INSERT INTO user_events(user_id, event_id) VALUES (%s, %s)",
            [event.payload["userId"], event.id],
        )

    # Start consuming
    await node.start()
    try:
        # Emit event
        event = await node.emit("user.created", {"userId": "123", "email": "user@example.com"})

        # Schedule recurring task
        task = await node.schedule_task(
            name="daily-cleanup",
            cron="0 2 * * *",
            event_type="maintenance.cleanup",
            payload={"retentionDays": 30},
        )
        await until(lambda: db.sql("select * from user_events") == [("123", event.id)])
        [registered] = await node.queue.nodes()
        assert (registered.node_id, registered.display_name, registered.alive) == (
            "api-server-1",
            "API Server",
            True,
        )
        assert registered.metadata == {"role": "producer"}
        assert task.next_fires[0].hour == 2
    finally:
        await node.stop()


@requirement("PG-21")
async def test_a_node_makes_what_it_needs_of_an_empty_database(empty_db: Database) -> None:
    one = node(empty_db, migrate=True, namespace="myapp")
    async with running(one):
        await one.emit("a")
        assert [queue.name for queue in await one.queue.queues()] == ["main"]
        assert await one.queue.dead_letters() == []
    partitions = "select count(*) from pg_inherits where inhparent = 'headrace.events'::regclass"
    assert empty_db.sql(partitions)[0][0] > 1


@requirement("PG-13", "PG-14", "PG-15", "PG-19")
async def test_the_envelope_has_what_the_document_lists(db: Database) -> None:
    one = node(db, "api-server-1", namespace="myapp")
    seen: list[Claimed] = []

    @one.on_event("*", max_retries=2, backoff=0)
    async def handle(event: Claimed) -> None:
        seen.append(event)
        if event.type == "user.created" and event.attempt == 1:
            raise ValueError("once more")

    async with running(one):
        message_id = (await one.emit("user.created", {"userId": "123"})).id
        await until(lambda: len(seen) == 2)
        task = await one.schedule_task("daily-cleanup", "0 2 * * *", "maintenance.cleanup")
        await one.queue.run_schedule("daily-cleanup")
        await until(lambda: len(seen) == 3)
    first, again, scheduled = seen
    for event, redelivery_count in ((first, 1), (again, 2)):
        assert event.namespace == "myapp"
        assert event.type == "user.created"
        assert event.payload == {"userId": "123"}
        assert isinstance(event.created_at, datetime)
        assert event.producer == "api-server-1"
        assert event.id == message_id
        assert event.scheduled_task_id is None
        assert event.attempt == redelivery_count
    assert (scheduled.producer, scheduled.scheduled_task_id) == ("scheduler", task.task_id)
    logged = "select event_id from headrace.event_log where action = 'EMITTED' order by id"
    assert db.sql(logged)[0] == (message_id,)


@requirement("PG-13")
async def test_every_event_says_its_namespace(db: Database) -> None:
    db.sql("select headrace.create_namespace('myapp')")
    async with db.async_queue(namespace="myapp") as queue:
        published = await queue.publish("user.created")
        found = [
            published,
            await queue.event(published.id),
            *(await queue.events()).events,
            *[event async for event in queue.replay()],
            *await queue.poll(),
        ]
    assert [(event.id, event.namespace) for event in found] == [(published.id, "myapp")] * 5


@requirement("PG-13", "PG-22")
async def test_the_producer_is_the_node_as_it_is_registered(db: Database) -> None:
    migrate(db.connect(), add=["core"])
    one = node(db, "API server/1", display_name="API Server")

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        await one.emit("b")

    async with running(one):
        await one.emit("a")
        joined = (
            "select l.event_type, n.display_name from core.event_log l join core.nodes n"
            " on n.namespace = l.namespace and n.node_id = l.producer_node_id order by l.event_id"
        )
        await until(lambda: db.sql(joined) == [("a", "API Server"), ("b", "API Server")])


@pytest.mark.parametrize("name", ["a b", "-ä-", "Ä", "...", "a" * 120 + "!", "a--b", "x" * 99 + "!!y", "a\nb"])  # fmt: skip
def test_a_node_has_the_id_that_the_engine_makes_of_it(db: Database, name: str) -> None:
    [(plain,)] = db.sql("select headrace._node_name(%s)", [name])
    if plain is None:
        with pytest.raises(headrace.InvalidInput, match="a letter or a digit"):
            headrace.Node(name)
    else:
        assert headrace.Node(name).settings.node_id == plain


@requirement("PG-18", "PG-30")
async def test_application_and_logger_are_what_postgresql_and_python_have(db: Database) -> None:
    one = node(db, dsn=make_conninfo(db.dsn, application_name="shop"))
    lines: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("headrace").addHandler(listener)

    @one.on_event("a")
    async def handle(event: Claimed) -> int:
        return 5

    try:
        async with running(one):
            named = "select count(*) > 0 from pg_stat_activity where application_name = 'shop'"
            assert db.sql(named) == [(True,)]
            await one.emit("a")
            await until(lambda: any("returned a value of the type int" in line for line in lines))
    finally:
        logging.getLogger("headrace").removeHandler(listener)


@requirement("PG-17", "PG-18")
async def test_the_documents_settings_are_arguments(db: Database) -> None:
    queue = db.queue()
    assert queue.queue().processing_interval == timedelta(milliseconds=1000)
    queue.change_queue("main", batch_size=10)
    queue.publish_many([("a", n) for n in range(35)])
    one = headrace.Node("one", dsn=db.dsn, lease=30)
    leases: dict[int, int] = {}
    lengths: set[timedelta] = set()

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        leases[event.lease] = leases.get(event.lease, 0) + 1
        lengths.add(event.lease_expires_at - db.sql("select headrace._now()")[0][0])

    async with running(one):
        await until(lambda: sum(leases.values()) == 35)
    assert max(leases.values()) <= 10
    assert max(lengths) <= timedelta(seconds=30)


@requirement("PG-19")
async def test_what_is_not_acknowledged_in_time_is_visible_again(db: Database) -> None:
    gone = db.queue(worker="gone:1")
    event = gone.publish("a")
    gone.poll(lease=30)
    one = node(db, lease=OUTLASTS)
    seen: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        seen.append(event.attempt)

    async with running(one):
        db.advance(seconds=31)
        await until(lambda: gone.event(event.id).status == "COMPLETED")
    assert seen == [2]


@requirement("PG-17", "PG-20", "PG-25", "PG-26")
async def test_a_failure_rolls_all_handlers_back_and_is_a_dead_letter(db: Database) -> None:
    db.sql("create table effects (who text)")
    queue = db.queue()
    event = queue.publish("order.paid", {"order": 1}, max_retries=0)
    one = node(db)

    @one.on_event("order.paid")
    async def first(event: Claimed, connection: Any) -> None:
        await connection.execute("insert into effects values ('first')")

    @one.on_event("order.*")
    async def second(event: Claimed, connection: Any) -> None:
        await connection.execute("insert into effects values ('second')")
        raise ValueError("the bank is closed")

    async with running(one):
        await until(lambda: queue.event(event.id).status == "FAILED")
        letter = queue.dead_letter(event.id)
        assert (letter.type, letter.payload, letter.reason) == (
            "order.paid",
            {"order": 1},
            "Handler error",
        )
        assert "ValueError: the bank is closed" in (letter.error or "")
        assert "second" in (letter.error or "")
        assert letter.died_at >= letter.created_at
        assert db.sql("select * from effects") == []


@requirement("PG-25")
async def test_what_nobody_handles_is_a_dead_letter_where_the_namespace_wants_it(
    db: Database,
) -> None:
    queue = db.queue()
    queue.change_namespace("default", unhandled="dead_letter", unhandled_after=60)
    event = queue.publish("order.lost")
    one = node(db)

    @one.on_event("order.paid")
    async def handle(event: Claimed) -> None: ...

    async with running(one):
        await settled(one)
        assert queue.event(event.id).status == "PENDING"
        for _ in range(4):
            db.advance(minutes=1)
            queue.tick()
        await until(lambda: queue.event(event.id).status == "FAILED")
    assert queue.dead_letter(event.id).reason == "No handler for event order.lost"


@requirement("PG-16", "PG-23", "PG-24")
async def test_registering_starts_the_consumer_and_stopping_says_goodbye(db: Database) -> None:
    queue = db.queue()
    queue.publish("a")
    one = node(db, "api-server-1")
    seen: list[int] = []
    async with running(one):
        assert [found.alive for found in queue.nodes()] == [True]

        @one.on_event("a")
        async def handle(event: Claimed) -> None:
            seen.append(event.id)

        await until(lambda: seen)
        await until(lambda: queue.nodes()[0].handles == ("a",))
    assert [found.alive for found in queue.nodes()] == [False]


@requirement("PG-6", "PG-11", "PG-15", "PG-27", "PG-28", "G12")
async def test_a_function_is_run_by_the_clock(db: Database) -> None:
    queue = db.queue()
    nodes = node(db, "one"), node(db, "two")
    ran: list[Claimed] = []
    for one in nodes:

        @one.every("0 2 * * *", timezone="Europe/Berlin", payload={"days": 30})
        async def nightly(event: Claimed) -> None:
            ran.append(event)

    async with running(*nodes):
        [task] = queue.schedules()
        assert (task.name, task.event_type, task.timezone) == (
            "nightly",
            "schedule.nightly",
            "Europe/Berlin",
        )
    # Nobody is at work while the clock is moved by hours.
    now = db.sql("select headrace._now()")[0][0]
    db.advance(seconds=(task.next_fires[0] - now).total_seconds() + 1)
    async with running(*nodes):
        await until(lambda: queue.stats().completed == 1)
        queue.pause_schedule("nightly")
    async with running(*nodes):
        assert [task.active for task in queue.schedules()] == [False], "it stays as it was left"
    assert [(event.payload, event.producer) for event in ran] == [({"days": 30}, "scheduler")]
    assert ran[0].scheduled_for == task.next_fires[0]


@requirement("PG-6", "PG-16")
async def test_a_schedule_may_be_added_while_the_node_runs(db: Database) -> None:
    queue = db.queue()
    one = node(db)
    ran: list[str] = []
    async with running(one):

        @one.every("@hourly")
        def tidy(event: Claimed) -> None:
            ran.append(event.type)

        await until(queue.schedules)
        queue.run_schedule("tidy")
        await until(lambda: ran == ["schedule.tidy"])


def test_an_expression_that_never_fires_is_refused_where_it_is_written() -> None:
    with pytest.raises(headrace.InvalidInput):
        headrace.Node("one").every("0 0 31 2 *")
    with pytest.raises(headrace.InvalidInput):
        headrace.Node("one").every("@hourly", timezone="Europe/Nowhere")


@requirement("PG-29")
async def test_of_its_limits_most_are_lifted(db: Database) -> None:
    """Polling latency, no ordering, no deduplication, no mix of handlers in and outside of transactions. That all is in
    one database stays, and the longer a lease, the later a dead worker's events come back."""
    queue = db.queue()
    db.sql("create table effects (n int)")
    one = node(db, idle=60)
    order: list[int] = []
    beside: list[int] = []

    @one.on_event("a")
    async def in_transaction(event: Claimed, connection: Any) -> None:
        order.append(event.payload)
        await connection.execute("insert into effects values (%s)", [event.payload])

    @one.on_event("a")
    def outside(event: Claimed) -> None:
        beside.append(event.payload)

    async with running(one):
        await asyncio.sleep(0.05)
        began = time.monotonic()
        for n in range(6):
            queue.publish("a", n, key="one after the other", idempotency_key=f"number {n}")
            queue.publish("a", n, key="one after the other", idempotency_key=f"number {n}")
        await until(lambda: len(order) == 6)
        assert time.monotonic() - began < 30, "nobody waited for a poll"
        await until(lambda: queue.stats().completed == 6)
    assert order == sorted(order) == beside
