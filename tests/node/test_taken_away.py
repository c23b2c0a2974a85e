"""Events that are cancelled, reset or erased while their handlers run: the handlers are interrupted, at once."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from headrace import AsyncContext, Claimed, Context, Node
from headrace.client import EventQueue
from tests.database import PATIENCE, Database
from tests.node.nodes import node, running, settled, until
from tests.pooler import pgbouncer

pytestmark = pytest.mark.anyio

LONG = 3_600  # seconds: no heartbeat comes by itself during a test


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("headrace")
    ]


def looks(context: Context) -> bool:
    """Do what a patient plain handler does; whether it was told to stop in the end."""
    deadline = time.monotonic() + PATIENCE
    while not context.lost and time.monotonic() < deadline:
        time.sleep(0.005)
    return context.lost


class Door:
    """A way in which a node runs handlers, with one that waits until it is interrupted."""

    def __init__(self, one: Node, db: Database) -> None:
        self.one = one
        self.begun: list[int] = []
        self.interrupted: list[int] = []
        db.sql("create table if not exists effects (event bigint)")

    async def waits(self, *ids: int) -> None:
        self.begun += ids
        try:
            await asyncio.sleep(10 * PATIENCE)
        except asyncio.CancelledError:
            self.interrupted += ids
            raise

    def awaited(self) -> None:
        @self.one.on_event("a")
        async def handle(event: Claimed) -> None:
            await self.waits(event.id)

    def with_context(self) -> None:
        @self.one.on_event("a", timeout=PATIENCE)
        async def handle(event: Claimed, context: AsyncContext) -> None:
            try:
                await self.waits(event.id)
            finally:
                assert context.lost

    def plain(self) -> None:
        @self.one.on_event("a")
        def handle(event: Claimed, context: Context) -> None:
            self.begun.append(event.id)
            if looks(context):
                self.interrupted.append(event.id)

    def plain_that_raises(self) -> None:
        @self.one.on_event("a")
        def handle(event: Claimed, context: Context) -> None:
            self.begun.append(event.id)
            if looks(context):
                self.interrupted.append(event.id)
                raise ValueError("I was told to stop")

    def batch(self) -> None:
        @self.one.on_batch("a", size=10)
        async def handle(events: list[Claimed]) -> None:
            await self.waits(*(event.id for event in events))

    def transactional(self) -> None:
        @self.one.on_event("a")
        async def handle(event: Claimed, connection: Any) -> None:
            await connection.execute("insert into effects values (%s)", [event.id])
            await self.waits(event.id)

    def plain_transactional(self) -> None:
        @self.one.on_event("a")
        def handle(event: Claimed, connection: Any, context: Context) -> None:
            connection.execute("insert into effects values (%s)", [event.id])
            self.begun.append(event.id)
            if looks(context):
                self.interrupted.append(event.id)

    def batch_in_a_transaction(self) -> None:
        @self.one.on_batch("a", size=10)
        async def handle(events: list[Claimed], connection: Any) -> None:
            await self.waits(*(event.id for event in events))

    def collecting(self) -> None:
        self.awaited()

        @self.one.on_event("a")
        async def never(event: Claimed) -> None:
            raise AssertionError("no other handler is called for an event that is gone")

    def swallowing(self) -> None:
        @self.one.on_event("a")
        async def handle(event: Claimed) -> None:
            with suppress(asyncio.CancelledError):
                await self.waits(event.id)

        @self.one.on_event("a")
        async def never(event: Claimed) -> None:
            raise AssertionError("no other handler is called for an event that is gone")

    def translating(self) -> None:
        @self.one.on_event("a")
        async def handle(event: Claimed) -> None:
            try:
                await self.waits(event.id)
            except asyncio.CancelledError:
                raise ValueError("I was cancelled") from None


DOORS: list[tuple[Callable[[Door], None], dict[str, Any]]] = [
    (Door.awaited, {}),
    (Door.with_context, {}),
    (Door.plain, {}),
    (Door.plain_that_raises, {}),
    (Door.batch, {}),
    (Door.transactional, {}),
    (Door.plain_transactional, {}),
    (Door.batch_in_a_transaction, {}),
    (Door.collecting, {"dispatch": "collect"}),
    (Door.swallowing, {}),
    (Door.swallowing, {"dispatch": "collect"}),
    (Door.translating, {}),
    (Door.translating, {"dispatch": "collect"}),
]
NAMES = ["-".join([door.__name__, *options.values()]) for door, options in DOORS]


@pytest.mark.parametrize(("door", "options"), DOORS, ids=NAMES)
async def test_a_cancelled_event_interrupts_its_handler_at_every_door(
    db: Database,
    caplog: pytest.LogCaptureFixture,
    door: Callable[[Door], None],
    options: dict[str, Any],
) -> None:
    caplog.set_level(logging.INFO, "headrace.node")
    queue, errors = db.queue(), []
    ids = queue.publish_many([("a", n) for n in range(3)])
    one = node(db, lease=LONG, on_error=lambda *error: errors.append(error), **options)
    opened = Door(one, db)
    door(opened)
    async with running(one):
        await until(lambda: len(opened.begun) == 3)
        for id in ids:
            queue.cancel(id, reason="not needed")
        await until(lambda: set(opened.interrupted) == set(ids))
        await settled(one)
        await until(lambda: not any(run.claims for run in one._running().runs.running))
    assert {queue.event(id).status for id in ids} == {"CANCELLED"}
    assert [entry.action for entry in queue.log(ids[0])] == ["EMITTED", "PICKED", "CANCELLED"]
    assert db.sql("select * from effects") == []
    assert (warned(caplog), errors) == ([], [])
    assert "events were cancelled; handlers of" in caplog.text


@pytest.mark.parametrize("action", ["cancel", "reset", "erase"])
@pytest.mark.parametrize("each", [False, True], ids=["shared", "own"])
async def test_of_events_that_share_a_lease_only_the_one_that_is_taken_is_interrupted(
    db: Database, action: str, each: bool
) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(3)])
    one = node(db, lease=LONG)
    begun: list[tuple[int, int]] = []
    ended: list[tuple[int, int, str]] = []
    go_on = asyncio.Event()

    async def handle(event: Claimed) -> None:
        begun.append((event.id, event.attempt))
        try:
            if event.attempt == 1:
                await go_on.wait()
        except asyncio.CancelledError:
            ended.append((event.id, event.attempt, "interrupted"))
            raise
        ended.append((event.id, event.attempt, "done"))

    async def in_a_transaction(event: Claimed, connection: Any) -> None:
        await handle(event)

    one.on_event("a")(in_a_transaction if each else handle)
    async with running(one):
        await until(lambda: len(begun) == 3)
        getattr(queue, action)(ids[1])
        await until(lambda: (ids[1], 1, "interrupted") in ended)
        if action == "reset":
            await until(lambda: (ids[1], 2, "done") in ended)
        go_on.set()
        await until(lambda: queue.stats().completed == (3 if action == "reset" else 2))
        await settled(one)
    assert sorted(begun)[:3] == [(ids[0], 1), (ids[1], 1), *sorted(begun)[2:3]]
    statuses = [queue.event(id).status for id in ids]
    assert statuses == [
        "COMPLETED",
        "COMPLETED" if action == "reset" else "CANCELLED",
        "COMPLETED",
    ]
    assert sorted(ended) == sorted(
        [
            (ids[0], 1, "done"),
            (ids[1], 1, "interrupted"),
            (ids[2], 1, "done"),
            *([(ids[1], 2, "done")] if action == "reset" else []),
        ]
    )


async def test_the_others_of_a_batch_are_handed_back_and_handled_again(db: Database) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(5)])
    one = node(db, lease=LONG)
    calls: list[list[int]] = []

    @one.on_batch("a", size=5)
    async def handle(events: list[Claimed]) -> None:
        calls.append([event.id for event in events])
        if len(calls) == 1:
            await asyncio.sleep(PATIENCE)

    async with running(one):
        await until(lambda: calls)
        queue.cancel(ids[2])
        await until(lambda: queue.stats().completed == 4)
        await settled(one)
    assert calls[0] == ids
    assert sorted(id for call in calls[1:] for id in call) == [*ids[:2], *ids[3:]]
    assert [queue.event(id).retry_count for id in ids] == [0] * 5


async def test_a_plain_batch_goes_on_and_only_what_was_taken_does_not_count(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.node")
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(3)])
    one = node(db, lease=LONG)
    begun, go_on = threading.Event(), threading.Event()

    @one.on_batch("a", size=3)
    def handle(events: list[Claimed]) -> None:
        begun.set()
        go_on.wait(PATIENCE)

    async with running(one):
        await until(begun.is_set)
        queue.cancel(ids[0])
        await until(lambda: "1 events were cancelled" in caplog.text)
        go_on.set()
        await until(lambda: queue.stats().completed == 2)
        await settled(one)
    assert [queue.event(id).status for id in ids] == ["CANCELLED", "COMPLETED", "COMPLETED"]
    assert [queue.event(id).attempts for id in ids] == [1, 1, 1]


async def test_what_was_claimed_and_has_not_begun_does_not_begin(db: Database) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(3_000)])
    one = node(db, lease=LONG, concurrency=1)
    begun: list[int] = []
    go_on = asyncio.Event()

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        begun.append(event.id)
        if len(begun) > 500:  # by then the node claims ahead
            await go_on.wait()

    async with running(one):
        await until(lambda: len(begun) > 500 and one._running().buffered)
        [consumer] = one._running().consumers.values()
        doomed = {claimed.id for claimed in list(consumer.buffer)[:20]}
        for id in doomed:
            queue.cancel(id)
        await until(lambda: not doomed & {claimed.id for claimed in consumer.buffer})
        go_on.set()
        await until(lambda: queue.stats().completed == 3_000 - len(doomed))
        await settled(one)
    assert doomed
    assert set(begun) == set(ids) - doomed


async def test_a_deleted_queue_interrupts_its_handlers(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    db.queue().create_queue("other", types=["a"])
    queue = db.queue(queue="other")
    queue.publish("a")
    one = node(db, queue="other", lease=LONG)
    opened = Door(one, db)
    opened.awaited()
    async with running(one):
        await until(lambda: opened.begun)
        db.queue().delete_queue("other", with_deliveries=True)
        await until(lambda: opened.interrupted)
    assert "because their queue was deleted" in caplog.text


async def test_without_notifications_the_next_heartbeat_interrupts(db: Database) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(3)])
    with pgbouncer(db) as dsn:
        one = node(db, dsn=dsn, lease=1.5)
        opened = Door(one, db)
        opened.awaited()
        async with running(one):
            await until(lambda: len(opened.begun) == 3)
            assert not one._running().connections.wakeups.working
            queue.cancel(ids[0])
            await until(lambda: opened.interrupted == [ids[0]])
            lease_ends = queue.event(ids[1]).lease_expires_at
            await until(lambda: queue.event(ids[1]).lease_expires_at > lease_ends)  # they go on
            assert opened.interrupted == [ids[0]]
            queue.cancel(ids[1])
            queue.cancel(ids[2])
            await until(lambda: sorted(opened.interrupted) == ids)


async def test_what_was_taken_while_nothing_was_heard_is_interrupted_after_it(db: Database) -> None:
    queue = db.queue()
    [id] = queue.publish_many([("a", 1)])
    one = node(db, lease=LONG)
    opened = Door(one, db)
    opened.awaited()
    async with running(one):
        await until(lambda: opened.begun)
        db.sql("set headrace.notify = off")
        db.sql("select headrace.cancel('default', %s)", [id])
        db.sql(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
            " and datname = current_database() and query ~ 'hear_interruptions|fall_asleep|wake_up'"
        )
        await until(lambda: opened.interrupted == [id])


async def test_hints_of_strangers_interrupt_nothing(db: Database) -> None:
    queue = db.queue()
    queue.publish("a")
    one = node(db, lease=LONG)
    opened = Door(one, db)
    opened.awaited()
    async with running(one):
        await until(lambda: opened.begun)
        keeper = one._running().keeper
        [(lease,)] = db.sql("select id from headrace.leases")
        before = keeper.renewed_at(lease)
        for said in ("", "x", "-1", "٣", "9" * 5000, str(lease)):
            db.sql("select pg_notify(headrace._holder_channel(%s), %s)", [keeper.instance, said])
        await until(lambda: keeper.renewed_at(lease) > before)
        assert opened.interrupted == []


async def test_a_thousand_running_handlers_are_interrupted_within_two_seconds(db: Database) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(1_000)])
    one = node(db, lease=LONG, concurrency=1_000)
    opened = Door(one, db)
    interrupted_at: list[float] = []
    begun = 0

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        nonlocal begun
        begun += 1
        try:
            await asyncio.sleep(PATIENCE * 10)
        finally:
            interrupted_at.append(time.time())

    async with running(one):
        await until(lambda: begun == 1_000)
        assert db.sql("select count(*) from headrace.leases")[0][0] < 100  # they share leases
        await asyncio.to_thread(_cancel_all, queue, ids)
        await until(lambda: len(interrupted_at) == 1_000)
    [(last,)] = db.sql(
        "select extract(epoch from max(at)) from headrace.outcomes where action = 'CANCELLED'"
    )
    assert opened.begun == []
    assert max(interrupted_at) - float(last) < 2.0
    assert {queue.event(id).status for id in (ids[0], ids[-1])} == {"CANCELLED"}


def _cancel_all(queue: EventQueue, ids: list[int]) -> None:
    for id in ids:
        queue.cancel(id)
