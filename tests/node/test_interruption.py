"""Handlers that are interrupted: their time is up, their lease is lost, or their node stops."""

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

from headrace import AsyncContext, Claimed, Context
from headrace.node.run.underway import CutReason, Underway
from tests.database import PATIENCE, Database
from tests.node.nodes import node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


async def test_a_timeout_is_for_its_handler_and_not_for_those_that_come_after(db: Database) -> None:
    queue = db.queue()
    ids = [queue.publish("a", n, max_retries=0).id for n in range(3)]
    one = node(db, dispatch="collect", concurrency=1)
    ends: list[tuple[str, int]] = []

    @one.on_event("a", timeout=0.05)
    async def raises(event: Claimed) -> None:
        raise ValueError("at once")

    @one.on_event("a")
    async def takes_longer(event: Claimed) -> None:
        await asyncio.sleep(0.1)
        ends.append(("async", event.id))

    @one.on_event("a")
    def takes_longer_too(event: Claimed) -> None:
        time.sleep(0.1)
        ends.append(("plain", event.id))

    async with running(one):
        await until(lambda: len(ends) == 6)
        await settled(one)
    assert sorted(ends) == sorted((kind, id) for kind in ("async", "plain") for id in ids)
    assert "TimeoutError" not in (queue.dead_letter(ids[0]).error or "")


async def test_of_handlers_in_one_thread_each_has_its_own_time(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    queue.publish_many([("quick", {})] * 20 + [("slow", {})])
    one = node(db, concurrency=1)
    seen: list[bool] = []

    @one.on_event("quick", timeout=0.5)
    def quick(event: Claimed) -> None: ...

    @one.on_event("slow")
    def slow(event: Claimed, context: Context) -> None:
        time.sleep(0.7)
        seen.append(context.cancelled)

    async with running(one):
        await until(lambda: queue.stats().completed == 21)
    assert seen == [False]
    assert "longer than its timeout" not in caplog.text


async def test_a_plain_handler_sees_that_its_time_is_up_and_its_result_counts(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    alone, beside = queue.publish("alone").id, queue.publish("beside").id
    one = node(db)

    def waits(context: Context) -> None:
        deadline = time.monotonic() + 20
        while not context.cancelled and time.monotonic() < deadline:
            time.sleep(0.005)
        assert not context.lost

    @one.on_event("alone", timeout=0.05)
    def plain(event: Claimed, context: Context) -> None:
        waits(context)

    @one.on_event("beside", timeout=0.05)
    def plain_beside_an_async_one(event: Claimed, context: Context) -> None:
        waits(context)

    @one.on_event("beside")
    async def awaited(event: Claimed) -> None: ...

    async with running(one):
        await until(lambda: queue.stats().completed == 2)
    assert [queue.event(id).status for id in (alone, beside)] == ["COMPLETED"] * 2
    assert caplog.text.count("longer than its timeout") == 2


async def test_a_timeout_cancels_an_async_handler_that_shares_a_plain_ones_transaction(
    db: Database,
) -> None:
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db)

    @one.on_event("a")
    def writes(event: Claimed, connection: Any) -> None:
        connection.execute("insert into effects values (%s)", [event.id])

    @one.on_event("a", timeout=0.05)
    async def hangs(event: Claimed) -> None:
        await asyncio.sleep(60)

    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert "not done after 0.05 seconds" in (queue.dead_letter(id).error or "")
    assert db.sql("select * from effects") == []


async def test_a_timeout_that_comes_before_the_loop_has_the_handler_cancels_it_all_the_same(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db)
    expired = threading.Event()
    interrupt, submit = Underway.interrupt, asyncio.run_coroutine_threadsafe

    def noted(underway: Underway, reason: CutReason) -> bool:
        try:
            return interrupt(underway, reason)
        finally:
            expired.set()

    def late(*arguments: Any) -> Any:
        assert expired.wait(PATIENCE)
        return submit(*arguments)

    monkeypatch.setattr(Underway, "interrupt", noted)
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", late)

    @one.on_event("a")
    def writes(event: Claimed, connection: Any) -> None: ...

    @one.on_event("a", timeout=0.05)
    async def hangs(event: Claimed) -> None:
        await asyncio.sleep(600)

    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert "not done after 0.05 seconds" in (queue.dead_letter(id).error or "")


@pytest.mark.parametrize("answer", ["swallows", "translates", "groups", "times out itself"])
async def test_whatever_a_handler_makes_of_its_cancellation_the_next_event_is_handled(
    db: Database, answer: str
) -> None:
    queue = db.queue()
    first, second = queue.publish("a", max_retries=0).id, queue.publish("b").id
    one = node(db, concurrency=1)

    @one.on_event("a", timeout=0.05)
    async def handle(event: Claimed) -> None:
        try:
            match answer:
                case "groups":
                    async with asyncio.TaskGroup() as group:
                        group.create_task(asyncio.sleep(60))
                        group.create_task(asyncio.sleep(60))
                case "times out itself":
                    async with asyncio.timeout(0.01):
                        await asyncio.sleep(60)
                case _:
                    await asyncio.sleep(60)
        except asyncio.CancelledError:
            if answer == "translates":
                raise ValueError("I was cancelled") from None
            if answer != "swallows":
                raise

    @one.on_event("b")
    async def other(event: Claimed) -> None:
        await asyncio.sleep(0)

    async with running(one):  # whichever of them it begins with
        await until(lambda: queue.event(second).status == "COMPLETED")
        await until(lambda: queue.event(first).status in ("COMPLETED", "FAILED"))
        await settled(one)
    assert queue.event(first).status == ("COMPLETED" if answer == "swallows" else "FAILED")


async def test_a_handler_that_cancels_itself_has_failed(db: Database) -> None:
    queue = db.queue()
    ids = [queue.publish(type, max_retries=0).id for type in ("quick", "transactional")]
    one = node(db)

    async def cancels() -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        task.cancel()
        await task

    @one.on_event("quick")
    async def quick(event: Claimed) -> None:
        await cancels()

    @one.on_event("transactional")
    async def transactional(event: Claimed, connection: Any) -> None:
        await cancels()

    async with running(one):
        await until(lambda: all(queue.event(id).status == "FAILED" for id in ids))


@requirement("G6")
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_handler_whose_lease_is_lost_sees_it_and_is_cancelled(
    db: Database, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace.node")
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db, lease=1.5)
    started, saw = threading.Event(), []

    if kind == "async":

        @one.on_event("a")
        async def handle(event: Claimed, context: AsyncContext) -> None:
            started.set()
            if event.attempt == 1:
                try:
                    await asyncio.sleep(60)
                finally:
                    saw.append((context.cancelled, context.lost, context.remaining))

    else:

        @one.on_event("a")
        def handle_plainly(event: Claimed, context: Context) -> None:
            started.set()
            deadline = time.monotonic() + 20
            while event.attempt == 1 and not context.lost and time.monotonic() < deadline:
                time.sleep(0.005)
            if event.attempt == 1:
                saw.append((context.cancelled, context.lost, context.remaining))

    async with running(one):
        await until(started.is_set)
        queue.reset(id)
        await until(lambda: queue.event(id).status == "COMPLETED")
        await until(lambda: saw)
    assert saw == [(True, True, 0.0)]
    assert queue.event(id).attempts == 2
    assert "1 events were reset; handlers of 1 of them are interrupted" in caplog.text


async def test_a_handler_may_stop_its_node_but_not_wait_for_it(db: Database) -> None:
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db)
    stopping: list[asyncio.Task[None]] = []

    @one.on_event("a")
    async def waits(event: Claimed) -> None:
        await one.stop()

    @one.on_event("b")
    async def stops(event: Claimed) -> None:
        stopping.append(asyncio.create_task(one.stop()))

    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
        assert "cannot wait for its own end" in (queue.dead_letter(id).error or "")
        last = queue.publish("b").id
        await until(lambda: stopping)
        await stopping[0]
    assert queue.event(last).status == "COMPLETED"


async def test_the_lease_of_what_is_handled_is_shown_as_it_is_renewed(db: Database) -> None:
    queue = db.queue()
    queue.publish("a")
    one = node(db, lease=1.5)
    remaining: list[float] = []

    @one.on_event("a")
    async def handle(event: Claimed, context: AsyncContext) -> None:
        before = context.remaining
        await until(lambda: context.remaining > before)
        remaining.extend([before, context.remaining])

    async with running(one):
        await until(lambda: queue.stats().completed == 1)
    assert 0 < remaining[0] < remaining[1] <= 1.5


@pytest.mark.parametrize("kind", ["in one thread", "in thread and loop"])
async def test_that_one_plain_handler_took_too_long_is_not_the_next_ones_concern(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db)
    seen: list[bool] = []

    @one.on_event("a", timeout=0.02)
    def slow(event: Claimed, context: Context) -> None:
        deadline = time.monotonic() + 20
        while not context.cancelled and time.monotonic() < deadline:
            time.sleep(0.005)

    @one.on_event("a")
    def plain(event: Claimed, context: Context) -> None:
        seen.append(context.cancelled)

    @one.on_event("a", timeout=0.05)
    async def hangs(event: Claimed) -> None:
        await asyncio.sleep(60)

    if kind == "in one thread":

        @one.on_event("a")
        def writes(event: Claimed, connection: Any) -> None: ...

    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert seen == [False]
    assert "not done after 0.05 seconds" in (queue.dead_letter(id).error or "")


@pytest.mark.parametrize("error", [ValueError("hook"), SystemExit(1)])
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_hook_that_fails_changes_nothing(
    db: Database, kind: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", {})] * 3)

    def hook(failure: BaseException, event: Claimed) -> None:
        raise error

    one = node(db, on_error=hook)

    async def awaited(event: Claimed) -> None:
        raise KeyError("handler")

    def plain(event: Claimed) -> None:
        raise KeyError("handler")

    one.on_event("a", max_retries=0)(awaited if kind == "async" else plain)
    async with running(one):
        await until(lambda: all(queue.event(id).status == "FAILED" for id in ids))
    assert caplog.text.count("on_error itself failed") == 3
