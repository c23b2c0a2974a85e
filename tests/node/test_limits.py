"""Nodes and limits: they run as many as they may, ask for no more ahead, and sleep while all of it waits."""

import asyncio
import time
from typing import Any

import pytest

from headrace import Claimed, Limit, NewEvent
from headrace.node.runner import NodeRunner
from tests.database import Database
from tests.node.nodes import node, running, until
from tests.pooler import pgbouncer

pytestmark = pytest.mark.anyio


async def test_nodes_together_run_no_more_of_a_tenant_than_its_limit_says(db: Database) -> None:
    queue = db.queue()
    queue.change_queue("main", limits=[Limit("tag", prefix="tenant:", at_once=2)])
    for tenant, many in (("tenant:big", 60), ("tenant:small", 10)):
        queue.publish_many([NewEvent("a", n, tags=[tenant]) for n in range(many)])
    nodes = [node(db, f"node{n}", concurrency=5) for n in range(2)]
    most: dict[str, int] = {}
    now: dict[str, int] = {}

    async def handle(event: Claimed) -> None:
        [tenant] = event.tags
        now[tenant] = now.get(tenant, 0) + 1
        most[tenant] = max(most.get(tenant, 0), now[tenant])
        await asyncio.sleep(0.001)
        now[tenant] -= 1

    for one in nodes:
        one.on_event("a")(handle)
    async with running(*nodes):
        await until(lambda: queue.stats().completed == 70)
    assert max(most.values()) <= 2
    assert queue.limits() == []


async def test_a_node_claims_limited_events_for_free_handlers_only(db: Database) -> None:
    """So another node gets those that it could not start."""
    queue = db.queue()
    queue.change_queue("main", limits=[Limit("queue", at_once=10)])
    queue.publish_many([("a", n) for n in range(40)])
    one = node(db, concurrency=3)
    go_on = asyncio.Event()

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        await go_on.wait()

    async with running(one):
        await until(lambda: queue.stats().processing == 3)
        [group] = queue.limits()
        assert (group.in_progress, group.room) == (3, 7)
        assert len(queue.poll(max_events=10)) == 7
        go_on.set()
        await until(lambda: queue.stats().completed == 33)


async def test_a_node_that_waits_for_a_slot_asks_as_seldom_as_an_idle_one(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue()
    asked = await asks(db, monkeypatch)
    queue.change_queue("main", limits=[Limit("queue", at_once=1)])
    queue.publish_many([("a", n) for n in range(40)])
    queue.poll_one(lease=600)
    assert await asks(db, monkeypatch) <= asked + 2


async def test_a_node_that_waits_for_a_rate_asks_as_seldom_as_an_idle_one(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue()
    asked = await asks(db, monkeypatch)
    queue.change_queue("main", limits=[Limit("queue", rate=1, per=3600)])
    queue.publish_many([("a", n) for n in range(40)])
    queue.poll_one(lease=600)
    assert await asks(db, monkeypatch) <= asked + 2


async def asks(db: Database, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a node asks for events while its idle interval passes ten times."""
    times: list[float] = []
    claim = NodeRunner.claim

    async def counted(self: Any, *arguments: Any) -> Any:
        times.append(time.monotonic())
        return await claim(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(NodeRunner, "claim", counted)
        one = node(db, idle=0.1)
        one.on_event("a")(lambda event: None)
        async with running(one):
            await until(lambda: len(times) >= 3)
            begun = len(times)
            until_then = time.monotonic() + 1.0
            await until(lambda: time.monotonic() > until_then)
            return len(times) - begun


async def test_a_node_starts_an_event_when_its_rate_lets_it_and_not_a_poll_later(
    db: Database,
) -> None:
    queue = db.queue()
    queue.change_queue("main", limits=[Limit("queue", rate=5, per=1)])
    queue.publish_many([("a", n) for n in range(6)])
    one = node(db, idle=600, concurrency=3)
    one.on_event("a")(lambda event: None)
    async with running(one):
        await until(lambda: queue.stats().completed == 6)


async def test_a_node_without_notifications_starts_events_as_often_as_their_rate_lets_it(
    db: Database,
) -> None:
    queue = db.queue()
    queue.change_queue("main", limits=[Limit("queue", rate=5, per=1)])
    queue.publish_many([("a", n) for n in range(6)])
    with pgbouncer(db) as dsn:
        one = node(db, dsn=dsn, idle=600, concurrency=3)
        one.on_event("a")(lambda event: None)
        async with running(one):
            await until(lambda: queue.stats().completed == 6)


async def test_a_node_that_is_woken_too_early_looks_again_when_its_rate_lets_it(
    db: Database,
) -> None:
    queue = db.queue()
    queue.change_queue("main", limits=[Limit("queue", rate=1, per=2)])
    queue.publish_many([("a", n) for n in range(2)])
    one = node(db, idle=600)
    one.on_event("a")(lambda event: None)
    async with running(one):
        await until(lambda: queue.stats().completed == 1)
        await until(lambda: bool(db.sql("select true from pg_locks where classid = 1212433732")))
        queue.publish("a")
        await until(lambda: queue.stats().completed == 3)


async def test_a_node_that_sleeps_starts_an_event_when_a_slot_comes_free(db: Database) -> None:
    queue = db.queue()
    queue.change_queue("main", limits=[Limit("queue", at_once=1)])
    queue.publish_many([("a", n) for n in range(2)])
    first = queue.poll_one(lease=600)
    assert first is not None
    one = node(db, idle=600)
    one.on_event("a")(lambda event: None)
    async with running(one):
        await until(lambda: bool(db.sql("select true from pg_locks where classid = 1212433732")))
        queue.complete(first)
        await until(lambda: queue.stats().completed == 2)
