"""Nodes that handle events in every way there is, each of them a few of one type."""

import re
from collections.abc import Iterator
from itertools import count
from typing import Any

from headrace import AsyncContext, Claimed, Context, Discard, Done, Retry
from tests.database import Database
from tests.house.recording import Called, Recorder
from tests.node.nodes import node, settled, until

INSERT = "insert into effects values (%s)"

# Statements of loops and timers, which a node sends as often as there is time for: ticks, plans of schedules, heartbeats, its
# sleep between two claims; and what a pool says on each connection that it happens to open.
PERIODIC = re.compile(
    r"headrace\._?(tick|tasks_to_plan|touch_node_heartbeat|fall_asleep|wake_up)\("
    r"|^set default_transaction_isolation"
)
CLAIM = "headrace.poll_batch("  # the first is like all others, and how many follow is a matter of chance
FINISH = "headrace.finish("
# Its leases are numbered by claims, and its times are milliseconds.
FINISHED = re.compile(r"(\n +'[^']*', '[^']*', '[^']*', '[^']*'), [^ ]+, [^ ]+,")

# What completes an event inside a transaction says how many milliseconds it took.
INSIDE = re.compile(r"(\n +'\d+\.\d+', '\w+', 'main', \d+, \d+), \d+,")


class Handled:
    """How often handlers were called, so far."""

    def __init__(self) -> None:
        self.calls = 0


def ways(handled: Handled) -> Iterator[tuple[str, int, Any, Any]]:  # noqa: C901 - many handlers
    """By what it is: how many calls to wait for, the options of a node, and how it is to register its handler."""

    def called() -> int:
        handled.calls += 1
        return handled.calls

    async def succeeds(event: Claimed) -> None:
        called()

    def succeeds_plainly(event: Claimed, context: Context) -> Done:
        context.emit("caused", {"by": "plain"})
        context.save({"step": 1})
        called()
        return Done(201)

    async def emits(event: Claimed, context: AsyncContext) -> None:
        await context.emit("caused", 1, key="k")
        await context.save({"step": 1})
        called()

    async def retries(event: Claimed) -> Retry | None:
        return Retry(after=0, reason="not yet") if called() == 1 else None

    async def fails(event: Claimed) -> None:
        called()
        raise ValueError("no")

    async def discards(event: Claimed) -> Discard:
        called()
        return Discard("never")

    async def writes(event: Claimed, connection: Any, context: AsyncContext) -> None:
        await connection.execute(INSERT, [event.payload])
        await context.emit("caused", 2)
        await context.save({"step": 2})
        called()

    def writes_plainly(event: Claimed, connection: Any, context: Context) -> None:
        connection.execute(INSERT, [event.payload])
        context.emit("caused", 3)
        called()

    async def fails_to_write(event: Claimed, connection: Any) -> None:
        await connection.execute(INSERT, [event.payload])
        called()
        raise ValueError("no")

    async def batch(events: list[Claimed]) -> list[Any]:
        called()
        return [None, Discard("never"), Retry(after=3600)]

    def batch_written(events: list[Claimed], connection: Any) -> None:
        for event in events:
            connection.execute(INSERT, [event.payload])
        called()

    once = {"max_retries": 2, "backoff": 0}
    yield "an async handler", 1, {}, lambda one: one.on_event("t")(succeeds)
    yield "a plain handler", 1, {}, lambda one: one.on_event("t", tags=["a"])(succeeds_plainly)
    yield "an async handler that emits", 1, {}, lambda one: one.on_event("t")(emits)
    yield "a handler that retries", 2, {}, lambda one: one.on_event("t", **once)(retries)
    yield "a handler that fails for good", 2, {}, lambda one: one.on_event("t", **once)(fails)
    yield "a handler that discards", 1, {}, lambda one: one.on_event("t")(discards)
    yield "a handler in a transaction", 1, {}, lambda one: one.on_event("t")(writes)
    yield "a plain handler in a transaction", 1, {}, lambda one: one.on_event("t")(writes_plainly)
    yield (
        "a transaction that fails",
        2,
        {},
        lambda one: one.on_event("t", **once)(fails_to_write),
    )
    yield "a batch", 1, {}, lambda one: one.on_batch("t", size=3)(batch)
    yield "a batch in a transaction", 1, {}, lambda one: one.on_batch("t", size=3)(batch_written)
    yield (
        "two handlers that collect",
        2,
        {"dispatch": "collect"},
        lambda one: (one.on_event("t")(succeeds), one.on_event("*")(fails)),
    )


async def handle(db: Database, through: Database, recorder: Recorder) -> list[Called]:
    """Each way in a namespace of its own; what the node has sent, in no order."""
    db.sql("create table effects (n int)")
    handled, told = Handled(), []
    for n, (name, calls, options, register) in zip(count(), ways(handled), strict=False):
        namespace, handled.calls = f"space{n}", 0
        queue = db.queue(namespace=namespace)
        size = 3 if "batch" in name else 1
        queue.publish_many([{"type": "t", "payload": p, "tags": ["a"]} for p in range(size)])
        one = node(
            through, f"node{n}", namespace=namespace, idle=60, lease=600, connections=1, **options
        )
        register(one)
        recorder.take()
        await one.start()
        await until(lambda wanted=calls: handled.calls == wanted)
        await settled(one)
        await one.stop()
        told.append((f"{name}", steady(recorder.take())))
    return told


def steady(trips: list[list[str]]) -> list[list[str]]:
    """Without what is done as often as there is time for, in an order of its own: sessions work side by side."""
    kept = [
        [timeless(one) for one in trip]
        for trip in trips
        if not trip[0].startswith("prepare ") and not PERIODIC.search(trip[0])
    ]
    claims = [trip for trip in kept if CLAIM in trip[0]]
    return sorted([*claims[:1], *(trip for trip in kept if CLAIM not in trip[0])])


def timeless(statement: str) -> str:
    if FINISH in statement:
        return FINISHED.sub(r"\1, <leases>, <ms>,", statement)
    return INSIDE.sub(r"\1, <ms>,", statement)
