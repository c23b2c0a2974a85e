"""The EventBus document (001), its sequence diagram and its worker loop, with nodes as workers and router.

A pod's events are free after five minutes, an idle worker sleeps for ten seconds, and a failure is an end: lease=300, idle=10
and max_retries=0.
"""

import asyncio
import time

import pytest

from headrace import Claimed, Node
from headrace.node import stop
from tests.database import Database
from tests.node.nodes import OUTLASTS, node, running, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


def worker(db: Database, name: str, routed: list[tuple[str, str]], lease: int = 300) -> Node:
    one = node(db, name, lease=lease, idle=10)

    @one.on_event("order.paid")
    async def route_paid(event: Claimed) -> None:
        routed.append((name, event.type))
        if event.payload == "broken":
            raise ValueError("no such order")

    @one.on_event("order.shipped")
    async def route_shipped(event: Claimed) -> None:
        routed.append((name, event.type))

    return one


@requirement("EB-1", "EB-10", "EB-12")
async def test_success_and_failure_end_in_the_log(db: Database) -> None:
    bus = db.queue()
    paid, shipped, broken = (
        bus.publish(type, payload, max_retries=0)
        for type, payload in [("order.paid", 1), ("order.shipped", 1), ("order.paid", "broken")]
    )
    routed: list[tuple[str, str]] = []
    async with running(worker(db, "w1", routed)):
        await until(lambda: bus.event(broken.id).status == "FAILED")
        await until(lambda: bus.stats().completed == 2)
    assert sorted(routed) == [
        ("w1", "order.paid"),
        ("w1", "order.paid"),
        ("w1", "order.shipped"),
    ]
    assert [bus.event(event.id).status for event in (paid, shipped)] == ["COMPLETED"] * 2
    assert db.sql("select from headrace.event_queue") == []


@requirement("EB-12")
async def test_a_worker_that_sleeps_for_ten_seconds_is_woken_when_there_is_something(
    db: Database,
) -> None:
    bus = db.queue()
    routed: list[tuple[str, str]] = []
    async with running(worker(db, "w1", routed)):
        await asyncio.sleep(0.1)
        began = time.monotonic()
        bus.publish("order.paid", 1)
        await until(lambda: routed)
        assert time.monotonic() - began < 9


@requirement("EB-12", "G9", "G14")
async def test_a_cancellation_finalizes_nothing(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stop, "TELLING", 60)  # a busy machine takes its time
    bus = db.queue()
    event = bus.publish("order.packed", max_retries=0)
    one = node(db, lease=300)
    started = asyncio.Event()

    @one.on_event("order.packed")
    async def route(event: Claimed) -> None:
        started.set()
        await asyncio.sleep(60)

    async with running(one):
        await until(started.is_set)
        await one.stop(0)
    found = bus.event(event.id)
    assert (found.status, found.retry_count, found.attempts) == ("PENDING", 0, 1)


@requirement("EB-4", "EB-7", "EB-8", "EB-10", "EB-11")
async def test_recovery_is_done_by_w2(db: Database) -> None:
    pod = db.queue(worker="w1:1")
    event = pod.publish("order.paid", 1)
    pod.poll(lease=300)  # and dies
    routed: list[tuple[str, str]] = []
    async with running(worker(db, "w2", routed, OUTLASTS)):
        db.advance(minutes=5, seconds=1)
        await until(lambda: pod.event(event.id).status == "COMPLETED")
    assert routed == [("w2", "order.paid")]
    assert pod.event(event.id).attempts == 2
