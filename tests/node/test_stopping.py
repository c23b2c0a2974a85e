"""How nodes start and stop: what has not begun is handed back, what runs may end, and nothing is charged."""

import asyncio
import threading
import time
from typing import Any

import pytest

from headrace import Claimed, Context, InvalidInput, Node
from headrace.node import stop
from tests.database import Database
from tests.node.nodes import node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def uncharged(db: Database) -> bool:
    """Whether all that is there waits, and no failure or crash is counted."""
    waiting = "select status, retry_count, crashes from headrace.event_queue"
    return set(db.sql(waiting)) <= {("PENDING", 0, 0)}


@requirement("PG-23", "PG-24", "G14")
@pytest.mark.parametrize("kind", ["async", "plain", "transactional", "plain and transactional"])
async def test_what_runs_may_end_and_what_has_not_begun_is_handed_back(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    queue.publish_many([("a", {})] * 30)
    one = node(db, concurrency=3, connections=3)
    started: list[int] = []
    go_on, go_on_in_thread = asyncio.Event(), threading.Event()

    async def awaited(event: Claimed) -> None:
        started.append(event.id)
        await go_on.wait()

    def plain(event: Claimed) -> None:
        started.append(event.id)
        go_on_in_thread.wait(60)

    async def transactional(event: Claimed, connection: Any) -> None:
        await awaited(event)

    def plain_and_transactional(event: Claimed, connection: Any) -> None:
        plain(event)

    handlers = {
        "async": awaited,
        "plain": plain,
        "transactional": transactional,
        "plain and transactional": plain_and_transactional,
    }
    one.on_event("a")(handlers[kind])
    await one.start()
    await until(lambda: len(started) == 3)
    stopping = asyncio.create_task(one.stop())
    await until(lambda: one._running().buffered == 0)
    go_on.set()
    go_on_in_thread.set()
    await stopping
    assert len(started) == 3
    assert queue.stats().completed == 3
    assert uncharged(db)


@requirement("EB-12", "G14", "G9")
@pytest.mark.parametrize("kind", ["heeds", "translates", "swallows", "plain", "plain and async"])
async def test_what_does_not_end_in_time_is_handed_back_and_not_charged(
    db: Database, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Those that heed it end at once; others are not waited for.
    monkeypatch.setattr(stop, "LAST_WORDS", 20 if kind in ("heeds", "translates") else 0.1)
    queue = db.queue()
    queue.publish_many([("a", {})] * 4)
    one = node(db, concurrency=2)
    started: list[int] = []
    go_on = threading.Event()
    swallowed: list[asyncio.Event] = []

    async def awaited(event: Claimed) -> None:
        started.append(event.id)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if kind == "swallows":
                swallowed.append(asyncio.Event())
                await swallowed[-1].wait()
                return
            if kind == "translates":
                raise ValueError("I was cancelled") from None
            raise

    def plain(event: Claimed, context: Context) -> None:
        started.append(event.id)
        go_on.wait(60)
        assert context.cancelled

    one.on_event("a")(plain if kind.startswith("plain") else awaited)
    if kind == "plain and async":

        @one.on_event("a")
        async def beside(event: Claimed) -> None:
            started.append(-event.id)

    await one.start()
    await until(lambda: len(started) == 2)
    stopped = time.monotonic()
    await one.stop(0)
    assert time.monotonic() - stopped < 30, "it waited for the handlers"
    assert uncharged(db)
    assert queue.stats().completed == 0
    # What ends afterwards changes nothing.
    go_on.set()
    for event in swallowed:
        event.set()
    await asyncio.sleep(0.05)
    assert len(started) == 2
    assert uncharged(db)


async def test_who_is_in_a_hurry_waits_no_longer(db: Database) -> None:
    queue = db.queue()
    queue.publish("a")
    one = node(db, grace=60)
    started = asyncio.Event()

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        started.set()
        await asyncio.sleep(60)

    await one.start()
    await until(started.is_set)
    stopping = asyncio.create_task(one.stop())
    await until(lambda: one.vitals().trouble)
    one._running().hurry()
    await asyncio.wait_for(stopping, 30)
    assert uncharged(db)


async def test_who_does_not_wait_for_a_stop_is_in_a_hurry_and_another_may_wait(
    db: Database,
) -> None:
    queue = db.queue()
    queue.publish("a")
    one = node(db, grace=60)
    started = asyncio.Event()

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        started.set()
        await asyncio.sleep(60)

    await one.start()
    await until(started.is_set)
    first, second = asyncio.create_task(one.stop()), asyncio.create_task(one.stop())
    await until(lambda: one.vitals().trouble)
    first.cancel()
    await asyncio.wait_for(second, 30)
    assert first.cancelled() or await asyncio.wait_for(asyncio.wait({first}), 30)
    assert uncharged(db)


@requirement("PG-16", "PG-23")
async def test_a_node_may_be_started_again_and_again(db: Database) -> None:
    queue = db.queue()
    one = node(db)
    seen: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        seen.append(event.id)

    for n in range(1, 4):
        await one.stop()
        async with one:
            queue.publish("a")
            await until(lambda n=n: len(seen) == n)
        assert [found.alive for found in queue.nodes()] == [False]
    assert queue.stats().completed == 3


async def test_two_who_start_a_node_start_one(db: Database) -> None:
    one = node(db)
    started = await asyncio.gather(one.start(), one.start(), return_exceptions=True)
    assert [type(result) for result in started] == [type(None), InvalidInput]
    await asyncio.gather(one.stop(), one.stop())
    await one.stop()


async def test_a_node_that_cannot_start_leaves_nothing_open(db: Database) -> None:
    one = node(db, queue="nowhere")
    connections = "select count(*) from pg_stat_activity where datname = current_database()"
    before = db.sql(connections)
    with pytest.raises(Exception, match="nowhere"):
        await one.start()
    await until(lambda: db.sql(connections) == before)
    with pytest.raises(Exception, match="not running"):
        await one.emit("a")


async def test_a_handler_that_is_registered_while_the_node_stops_changes_nothing(
    db: Database,
) -> None:
    queue = db.queue()
    queue.publish("b")
    one = node(db)
    async with running(one):
        stopping = asyncio.create_task(one.stop())
        await asyncio.sleep(0)

        @one.on_event("b")
        async def late(event: Claimed) -> None: ...

        await stopping
    assert uncharged(db)
    async with running(one):
        await until(lambda: queue.stats().completed == 1)


async def test_many_lanes_made_and_unmade_while_events_flow_lose_none(db: Database) -> None:
    queue = db.queue()
    one = node(db, idle=60)
    seen: list[str] = []

    def add(type: str) -> None:
        @one.on_event(type)
        async def handle(event: Claimed) -> None:
            seen.append(event.type)

    add("t0")
    async with running(one):
        for n in range(1, 8):
            queue.publish_many([(f"t{n - 1}", {})] * 10)
            add(f"t{n}")
        await until(lambda: len(seen) == 70)
        await settled(one)
        watches = one._running().connections.wakeups._subscriptions
        await until(lambda: sum(len(one.watches) for one in watches.values()) <= 1)
    assert queue.stats().completed == 70
    assert uncharged(db)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lease": 0}, "a lease must last from 0.1 seconds to 7 days"),
        ({"lease": 0.001}, "a lease must last from 0.1 seconds to 7 days"),
        ({"idle": -1}, "idle must be longer than 0 seconds"),
        ({"concurrency": 0}, "concurrency"),
        ({"connections": 1.5}, "connections"),
        ({"dispatch": "both"}, "dispatch"),
        ({"on_error": "print"}, "on_error"),
        ({"metadata": {"a": object()}}, "metadata"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        Node("one", **options)


def test_a_hook_to_await_is_refused() -> None:
    async def hook(error: BaseException, event: Claimed) -> None: ...

    with pytest.raises(InvalidInput, match="on_error must be a plain function"):
        Node("one", on_error=hook)


async def test_a_namespace_is_made_when_it_is_missing(db: Database) -> None:
    one = node(db, namespace="shop")
    seen: list[str] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        seen.append(event.type)

    async with running(one):
        await one.emit("a")
        await until(lambda: seen)
    assert [found.node_id for found in db.queue(namespace="shop").nodes()] == ["node"]
