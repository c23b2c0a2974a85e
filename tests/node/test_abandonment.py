"""Handlers that do not end though their time is up: each harms its own event alone, and holds nothing."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from headrace import Claimed, Context, Done, Node
from headrace.node.run import abandoned, underway
from tests.database import PATIENCE, Database
from tests.node.nodes import node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(underway, "UNWINDING", 0.05)


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    """What plain functions wait for here; in the end they are let go."""
    event = threading.Event()
    yield event
    event.set()


def stubborn(kind: str, go_on: threading.Event) -> Callable[..., Any]:
    """A handler that does not end until it is let go, whatever it is told."""

    def plain(event: Claimed) -> Done:
        go_on.wait(PATIENCE)
        return Done()

    def transactional(event: Claimed, connection: Any) -> None:
        connection.execute("insert into effects values (%s)", [event.id])
        go_on.wait(PATIENCE)

    async def swallows(event: Claimed) -> None:
        while not go_on.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    async def swallows_in_a_transaction(event: Claimed, connection: Any) -> None:
        await connection.execute("insert into effects values (%s)", [event.id])
        await swallows(event)

    def batch(events: list[Claimed]) -> None:
        go_on.wait(PATIENCE)

    return {
        "plain": plain,
        "transactional": transactional,
        "swallows": swallows,
        "swallows in a transaction": swallows_in_a_transaction,
        "batch": batch,
    }[kind]


KINDS = ["plain", "transactional", "swallows", "swallows in a transaction", "batch"]


@requirement("G23")
@pytest.mark.parametrize("kind", KINDS)
async def test_after_its_timeout_a_handler_holds_no_slot_and_no_lease(
    db: Database, go_on: threading.Event, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    stuck = [queue.publish("stuck", max_retries=0).id for _ in range(2)]
    one = node(db, concurrency=2, connections=1)
    on = one.on_batch if kind == "batch" else one.on_event
    handler = on("stuck", timeout=0.05, **({"size": 1} if kind == "batch" else {}))
    handler(stubborn(kind, go_on))

    @one.on_event("next")
    def after(event: Claimed, connection: Any) -> None:
        connection.execute("insert into effects values (%s)", [event.id])

    @one.on_event("next.async")
    async def after_it(event: Claimed, connection: Any) -> None:
        await connection.execute("insert into effects values (%s)", [event.id])

    async with running(one):
        await until(lambda: all(queue.event(id).status == "FAILED" for id in stuck))
        others = [queue.publish(type).id for type in ("next", "next.async") for _ in range(2)]
        await until(lambda: all(queue.event(id).status == "COMPLETED" for id in others))
        await settled(one)
        assert one.vitals().leases == one.vitals().running == 0
        assert one.vitals().abandoned == 2
        await until(lambda: queue.nodes()[0].metadata == {"abandoned_handlers": 2})
        # What they do when they end changes nothing, and then they are no more.
        go_on.set()
        await until(lambda: one.vitals().abandoned == 0)
        await until(lambda: queue.nodes()[0].metadata == {})
        assert one._running().slots.taken == 0
        others.append(queue.publish("next").id)
        await until(lambda: queue.event(others[-1]).status == "COMPLETED")
    assert sorted(db.sql("select event from effects")) == sorted((id,) for id in others)
    for id in stuck:
        letter = queue.dead_letter(id)
        assert "TimeoutError: not done after 0.05 seconds" in (letter.error or "")
        assert (letter.attempts, letter.crashes) == (1, 0)
    assert caplog.text.count("is abandoned: it has not ended") == 2


@requirement("G23")
@pytest.mark.parametrize("where", ["in Python", "in SQL"])
@pytest.mark.parametrize("kind", ["plain", "async"])
async def test_the_transaction_of_an_abandoned_handler_is_rolled_back_and_its_locks_go(
    db: Database, go_on: threading.Event, kind: str, where: str
) -> None:
    db.sql("create table stock as select 1 as n")
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db, connections=1)
    take, wait = "update stock set n = n - 1", "select pg_sleep(3600) as stuck"

    def plain(event: Claimed, connection: Any) -> None:
        connection.execute(take)
        connection.execute(wait) if where == "in SQL" else go_on.wait(PATIENCE)

    async def swallows(event: Claimed, connection: Any) -> None:
        await connection.execute(take)
        waiting = asyncio.ensure_future(connection.execute(wait)) if where == "in SQL" else None
        while not go_on.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue
        if waiting is not None:
            with pytest.raises(psycopg.OperationalError):
                await waiting

    one.on_event("a", timeout=0.05)(plain if kind == "plain" else swallows)
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
        with psycopg.connect(db.dsn) as other:
            other.execute("set lock_timeout = '30s'")
            assert other.execute("update stock set n = n + 1 returning n").fetchone() == (2,)
        sleeping = "select count(*) from pg_stat_activity where query like '%as stuck' and state = 'active'"
        await until(lambda: db.sql(sleeping) == [(0,)])
        go_on.set()
        await until(lambda: one.vitals().abandoned == 0)


@requirement("G23", "PG-22")
@pytest.mark.parametrize("kind", ["plain", "transactional", "swallows"])
async def test_a_handler_that_is_abandoned_keeps_no_other_of_its_event_from_running(
    db: Database, go_on: threading.Event, kind: str
) -> None:
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db, dispatch="collect", concurrency=1)
    seen: list[int] = []

    @one.on_event("a")
    async def before(event: Claimed) -> None:
        seen.append(1)

    one.on_event("a", timeout=0.05)(stubborn(kind, go_on))

    @one.on_event("a")
    def after(event: Claimed) -> None:
        seen.append(2)

    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED_WITH_ERRORS")
        go_on.set()
        await until(lambda: one.vitals().abandoned == 0)
        await settled(one)
    assert seen == [1, 2]
    assert db.sql("select * from effects") == []
    assert "not done after 0.05 seconds" in (queue.dead_letter(id).error or "")


async def test_no_other_handler_of_an_event_runs_after_the_one_that_was_abandoned(
    db: Database, go_on: threading.Event
) -> None:
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db)
    seen: list[int] = []
    one.on_event("a", timeout=0.05)(stubborn("plain", go_on))

    @one.on_event("a")
    def after(event: Claimed) -> None:
        seen.append(event.id)

    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
        go_on.set()
        await until(lambda: one.vitals().abandoned == 0)
    assert seen == []


@requirement("G23")
async def test_an_event_whose_handler_was_abandoned_is_tried_again(
    db: Database, go_on: threading.Event
) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db, concurrency=1)

    @one.on_event("a", timeout=0.05, backoff=0.01)
    def hangs_at_first(event: Claimed) -> None:
        if event.attempt == 1:
            go_on.wait(PATIENCE)

    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert queue.event(id).attempts == 2


@requirement("G23")
async def test_beyond_a_bound_they_keep_their_slots_and_the_node_says_so(
    db: Database,
    go_on: threading.Event,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(abandoned, "FEWEST", 2)
    queue = db.queue()
    ids = [queue.publish("a", max_retries=0).id for _ in range(4)]
    one = node(db, concurrency=2)
    one.on_event("a", timeout=0.05)(stubborn("plain", go_on))
    async with running(one):
        await until(lambda: all(queue.event(id).status == "FAILED" for id in ids))
        assert one.vitals().abandoned == 4
        assert "4 handlers did not end after their timeouts" in str(one.vitals().trouble)
        waits = queue.publish("a").id
        assert one._running().slots.free == 0
        go_on.set()
        await until(lambda: queue.event(waits).status == "COMPLETED")
        await until(lambda: one.vitals().trouble is None)
    assert caplog.text.count("its process should be restarted") == 1


async def test_what_a_thread_has_done_is_told_though_its_next_event_takes_long(
    db: Database, go_on: threading.Event
) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(6)])
    one = node(db, concurrency=1)

    @one.on_event("a")
    def handle(event: Claimed) -> None:
        if event.payload == 5:
            go_on.wait(PATIENCE)

    async with running(one):
        await until(lambda: queue.stats().completed == 5)
        assert not go_on.is_set()
        go_on.set()
        await until(lambda: queue.event(ids[-1]).status == "COMPLETED")


async def test_a_stop_leaves_no_transaction_of_a_handler_that_does_not_heed_it(
    db: Database, go_on: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    db.sql("create table stock as select 1 as n")
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db)
    began = threading.Event()

    @one.on_event("a")
    def hangs(event: Claimed, connection: Any) -> None:
        connection.execute("update stock set n = n - 1")
        began.set()
        go_on.wait(PATIENCE)

    await one.start()
    await until(began.is_set)
    await one.stop(0)
    assert queue.event(id).status == "PENDING"
    assert f"hangs (event {id}, a)" in caplog.text
    with psycopg.connect(db.dsn) as other:
        other.execute("set lock_timeout = '30s'")
        assert other.execute("update stock set n = n + 1 returning n").fetchone() == (2,)


class Elsewhere:
    """A node in a thread, with a loop of its own that its handlers may block."""

    def __init__(self, one: Node) -> None:
        self._node = one
        self._over: asyncio.Event
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with self._node:
            self._ready.set()
            await self._over.wait()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._ready.wait(PATIENCE)

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@requirement("G23")
@pytest.mark.parametrize("transactional", [False, True])
async def test_a_handler_that_blocks_the_loop_beyond_timeout_and_grace_loses_its_event(
    db: Database, go_on: threading.Event, transactional: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    blocked, other = node(db, lease=3, grace=0.1), node(db, "other", grace=0.1)

    async def handle(event: Claimed, context: Context) -> None:
        if event.attempt == 1:
            go_on.wait(PATIENCE)

    async def in_a_transaction(event: Claimed, connection: Any) -> None:
        await handle(event, connection)

    for one in (blocked, other):
        added = in_a_transaction if transactional else handle
        one.on_event("a", timeout=0.05, backoff=0.01)(added)
    with Elsewhere(blocked):
        await until(lambda: queue.event(id).status != "PENDING")
        async with running(other):
            await until(lambda: queue.event(id).status == "COMPLETED")
        go_on.set()
    event = queue.event(id)
    assert (event.attempts, event.retry_count) == (2, 1)
    assert "the event loop is blocked, and handlers have not ended" in caplog.text
