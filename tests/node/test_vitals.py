"""What a running node tells of itself: its figures, whether it claims, and whose lines are whose in the logs."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headrace import Retry
from headrace.telemetry.logs import JsonFormatter
from tests.database import Database
from tests.node.nodes import node, running, settled, until

pytestmark = pytest.mark.anyio


async def test_the_figures_are_of_what_was_done(db: Database) -> None:
    one = node(db, concurrency=1)
    begun, end = asyncio.Event(), asyncio.Event()

    @one.on_event("good", "bad", "again")
    async def handle(event: Any) -> Any:
        if event.type == "again":
            return Retry(after=60)
        if event.type == "bad":
            raise ValueError
        return None

    @one.on_event("slow")
    async def slow(event: Any) -> None:
        begun.set()
        await end.wait()

    assert one.vitals().trouble == "The node is not running."
    queue = db.queue()
    queue.publish_many([("good", n) for n in range(20)])
    queue.publish("bad", max_retries=0)
    queue.publish("again")
    async with running(one):
        await until(lambda: sum(one.vitals().ended.values()) == 22)
        queue.publish_many([("slow", 1), ("slow", 2)])
        await begun.wait()
        there = one.vitals()
        assert there.ended == {
            ("good", "completed"): 20,
            ("bad", "dead_lettered"): 1,
            ("again", "failed"): 1,
        }
        assert (there.trouble, there.running, there.node, there.queue) == (None, 1, "node", "main")
        assert there.leases >= 1
        assert sum(there.run_times.values()) == 22
        end.set()
        await settled(one)
        await until(lambda: one.vitals().leases == 0)
        assert one.vitals().running == one.vitals().buffered == 0
    assert one.vitals().trouble == "The node is not running."


async def test_who_cannot_claim_is_not_ready_and_says_why(db: Database) -> None:
    one = node(db)

    @one.on_event("a")
    async def handle(event: Any) -> None: ...

    async with running(one):
        db.sql("alter function headrace.poll_batch rename to poll_batch_away")
        await until(lambda: one.vitals().trouble is not None)
        assert "PostgreSQL" in str(one.vitals().trouble)
        db.sql("alter function headrace.poll_batch_away rename to poll_batch")
        await until(lambda: one.vitals().trouble is None)


async def test_who_stops_is_not_ready_and_still_tells_its_figures(db: Database) -> None:
    one = node(db)
    begun, end = asyncio.Event(), asyncio.Event()

    @one.on_event("slow")
    async def slow(event: Any) -> None:
        begun.set()
        await end.wait()

    db.queue().publish("slow")
    await one.start()
    await begun.wait()
    stopping = asyncio.create_task(one.stop())
    await until(lambda: one.vitals().trouble == "The node is stopping.")
    assert one.vitals().running == 1
    end.set()
    await stopping


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


async def test_a_line_says_of_which_node_event_and_attempt_it_is(
    db: Database, lines: io.StringIO
) -> None:
    nodes = [node(db, name) for name in ("first", "second")]
    shop = logging.getLogger("shop")

    @nodes[0].on_event("a")
    async def handle(event: Any) -> None:
        shop.warning("charging")

    @nodes[1].on_event("b")
    def handle_plainly(event: Any, connection: psycopg.Connection[Any]) -> None:
        shop.warning("booking")
        raise ValueError("no such order")

    async with running(*nodes):
        shop.warning("outside")
        ids = db.queue().publish_many([("a", 1), ("b", 2)])
        await until(lambda: "charging" in lines.getvalue() and "no such order" in lines.getvalue())
    said = [json.loads(line) for line in lines.getvalue().splitlines()]

    def told(word: str) -> list[tuple[Any, ...]]:
        keys = ("node", "event_id", "event_type", "attempt", "handler")
        return [tuple(map(line.get, keys)) for line in said if word in line["message"]]

    assert told("outside") == [(None,) * 5]
    assert told("charging") == [("first", ids[0], "a", 1, None)]
    assert told("booking") == [("second", ids[1], "b", 1, None)]
    [(who, *which, name)] = told("no such order")
    assert (who, which) == ("second", [ids[1], "b", 1])
    assert name.endswith("handle_plainly")
