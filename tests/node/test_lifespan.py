"""What a node opens when it starts and closes when it stops: resources per process, `on_start`, `on_stop`."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headrace import Claimed, InvalidInput, Node, NotRunning
from tests.database import Database
from tests.node.nodes import node, running, until

pytestmark = pytest.mark.anyio


def resources(one: Node, story: list[str]) -> None:
    @one.resource(per="process")
    async def client() -> AsyncIterator[str]:
        async with asyncio.TaskGroup():  # which only the task that entered it may leave
            story.append("open client")
            yield "client"
            story.append("close client")

    @one.resource(per="process")
    def model(client: str) -> Iterator[str]:
        story.append(f"open model on {client}")
        yield "model"
        story.append("close model")


async def test_all_of_it_is_opened_before_the_first_claim_and_closed_in_reverse(
    db: Database,
) -> None:
    queue = db.queue()
    one, story = node(db), list[str]()
    resources(one, story)
    loop_thread = threading.current_thread()

    @one.on_start
    async def started(client: str) -> None:
        story.append(f"start 1 with {client}")

    @one.on_start
    def started_plainly() -> None:
        assert threading.current_thread() is not loop_thread
        story.append("start 2")

    @one.on_stop
    async def stopped() -> None:
        story.append("stop 1")

    @one.on_stop
    def stopped_plainly(model: str) -> None:
        assert threading.current_thread() is not loop_thread
        story.append(f"stop 2 with {model}")

    @one.on_event("a")
    async def handle(event: Claimed, client: str, model: str) -> None:
        story.append(f"handled with {client} and {model}")

    queue.publish("a")
    for _ in range(2):  # a node may be started again
        async with running(one):
            await until(lambda: any("handled" in line for line in story))
        assert story == [
            *("open client", "open model on client", "start 1 with client", "start 2"),
            "handled with client and model",
            *("stop 2 with model", "stop 1", "close model", "close client"),
        ]
        story.clear()
        queue.publish("a")


async def test_one_instance_is_for_all_handlers_of_the_process(db: Database) -> None:
    queue = db.queue()
    one, seen = node(db), list[object]()

    @one.resource(per="process")
    def pool() -> Iterator[object]:
        yield object()

    @one.resource
    def member(pool: object) -> Iterator[object]:
        yield pool

    @one.on_event("a")
    async def handle(event: Claimed, pool: object) -> None:
        seen.append(pool)

    @one.on_event("b")
    def handle_plainly(event: Claimed, member: object) -> None:
        seen.append(member)

    @one.on_batch("c")
    def handle_all(events: list[Claimed], pool: object) -> None:
        seen.append(pool)

    queue.publish_many([("a", 1), ("a", 2), ("b", 3), ("c", 4)])
    async with running(one):
        await until(lambda: queue.stats().completed == 4)
    assert len(seen) == 4
    assert len(set(map(id, seen))) == 1


async def test_functions_of_on_start_and_on_stop_may_use_the_queue(db: Database) -> None:
    one = node(db)

    @one.on_start
    async def started() -> None:
        await one.queue.publish("started")
        await one.emit("emitted")

    @one.on_stop
    async def stopped() -> None:
        await one.queue.publish("stopped")

    async with running(one):
        pass
    types = {type for (type,) in db.sql("select type from headrace.events")}
    assert types == {"started", "emitted", "stopped"}
    with pytest.raises(NotRunning):
        _ = one.queue


async def test_a_handler_registered_at_the_start_gets_its_events(db: Database) -> None:
    queue = db.queue()
    one, seen = node(db), list[int]()

    @one.on_start
    def register() -> None:
        @one.on_event("a")
        async def handle(event: Claimed) -> None:
            seen.append(event.id)

    id = queue.publish("a").id
    async with running(one):
        await until(lambda: seen == [id])


@pytest.mark.parametrize("where", ["resource", "on_start"])
async def test_a_start_that_fails_closes_what_was_opened_and_claims_nothing(
    db: Database, where: str
) -> None:
    queue = db.queue()
    one, story = node(db), list[str]()
    resources(one, story)
    does_fail = [True]

    def fail() -> None:
        if does_fail[0]:
            raise LookupError("no licence")

    @one.resource(per="process")
    def broken() -> Iterator[int]:
        if where == "resource":
            fail()
        yield 1

    if where == "on_start":
        one.on_start(fail)

    @one.on_event("a")
    async def handle(event: Claimed, client: str) -> None:
        story.append("handled")

    id = queue.publish("a").id
    with pytest.raises(LookupError, match="no licence") as raised:
        await one.start()
    assert (where == "resource") == any(
        "broken" in it for it in getattr(raised.value, "__notes__", [])
    )
    assert story == ["open client", "open model on client"]
    assert queue.event(id).attempts == 0
    does_fail[0] = False  # and the node may be started again
    async with running(one):
        await until(lambda: "handled" in story)
    assert story[-2:] == ["close model", "close client"]


async def test_a_start_that_is_cancelled_closes_what_was_opened(db: Database) -> None:
    one, story = node(db), list[str]()

    @one.resource(per="process")
    async def client() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            story.append("closed")

    @one.on_start
    async def slow() -> None:
        story.append("starts")
        await asyncio.sleep(60)

    starting = asyncio.create_task(one.start())
    await until(lambda: story == ["starts"])
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert story == ["starts", "closed"]
    with pytest.raises(NotRunning):
        _ = one.queue


async def test_what_fails_at_the_stop_is_logged_and_the_rest_is_closed(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    one, story = node(db), list[str]()
    resources(one, story)

    @one.on_stop
    def last() -> None:
        story.append("last")

    @one.on_stop
    async def broken() -> None:
        raise LookupError("no licence")

    async with running(one):
        story.clear()
    assert story == ["last", "close model", "close client"]
    assert "broken failed when the node stopped" in caplog.text
    assert "no licence" in caplog.text


async def test_a_stop_waits_for_no_longer_than_its_grace_time(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    one, story = node(db), list[str]()
    resources(one, story)

    @one.on_stop
    async def endless() -> None:
        story.append("begun")
        await asyncio.sleep(60)

    await one.start()
    await asyncio.wait_for(one.stop(0.2), 30)
    assert story[-3:] == ["begun", "close model", "close client"]
    assert "endless did not end in time when the node stopped" in caplog.text


async def test_handlers_have_ended_when_the_functions_of_on_stop_run(db: Database) -> None:
    queue = db.queue()
    one, story = node(db), list[str]()

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        story.append("begun")
        await asyncio.sleep(0.3)
        story.append("ended")

    @one.on_stop
    def stopped() -> None:
        story.append("stopped")

    queue.publish("a")
    async with running(one):
        await until(lambda: story == ["begun"])
    assert story == ["begun", "ended", "stopped"]


async def test_a_resource_per_process_is_registered_before_the_start(db: Database) -> None:
    one = node(db)
    async with running(one):
        with pytest.raises(InvalidInput, match="register it before the node starts"):

            @one.resource(per="process")
            def late() -> Iterator[int]:
                yield 1


def test_functions_of_on_start_ask_for_resources_per_process_alone() -> None:
    one = Node()

    @one.resource
    def session() -> Iterator[int]:
        yield 1

    with pytest.raises(InvalidInput, match=r"a function of on_start may take no arguments of"):

        @one.on_start
        def started(session: Any) -> None: ...

    with pytest.raises(InvalidInput, match=r"a function of on_stop must be a function, and 7 is"):
        one.on_stop(7)  # type: ignore[type-var]
