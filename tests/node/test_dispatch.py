"""Several handlers for one event."""

from typing import Any

import pytest

from headrace import AsyncContext, Claimed, Context, Discard
from tests.database import Database
from tests.node.nodes import OUTLASTS, node, running, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("PG-16", "PG-20")
async def test_atomic_handlers_succeed_or_fail_together(db: Database) -> None:
    db.sql("create table effects (who text)")
    queue = db.queue()
    good, bad = queue.publish("a", "good").id, queue.publish("a", "bad", max_retries=0).id
    one = node(db)
    seen: list[str] = []

    @one.on_event("a")
    async def first(event: Claimed, connection: Any) -> None:
        await connection.execute("insert into effects values (%s)", [f"first {event.payload}"])

    @one.on_event("*")
    async def second(event: Claimed) -> None:
        seen.append(event.payload)
        if event.payload == "bad":
            raise ValueError("no")

    @one.on_event("a")
    async def third(event: Claimed, connection: Any) -> None:
        await connection.execute("insert into effects values (%s)", [f"third {event.payload}"])

    async with running(one):
        await until(lambda: queue.event(good).status == "COMPLETED")
        await until(lambda: queue.event(bad).status == "FAILED")
    assert sorted(seen) == ["bad", "good"]
    assert db.sql("select who from effects order by 1") == [("first good",), ("third good",)]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_plain_and_async_handlers_emit_in_the_transaction_they_share(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    good, bad = queue.publish("a", "good").id, queue.publish("a", "bad", max_retries=0).id
    one = node(db, "node-1")

    if kind == "async":

        @one.on_event("a")
        async def transactional(event: Claimed, connection: Any) -> None:
            await connection.execute("select 1")

    else:

        @one.on_event("a")
        def transactional_too(event: Claimed, connection: Any) -> None:
            connection.execute("select 1")

    @one.on_event("a")
    async def awaited(event: Claimed, context: AsyncContext) -> None:
        await context.emit("b", event.payload)
        await context.save(1)

    @one.on_event("a")
    def plain(event: Claimed, context: Context) -> None:
        context.emit("c", event.payload)
        context.save(2)
        if event.payload == "bad":
            raise ValueError("no")

    async with running(one):
        await until(lambda: queue.event(good).status == "COMPLETED")
        await until(lambda: queue.event(bad).status == "FAILED")
    emitted = queue.events(types=["b", "c"], payload=True).events
    assert {(event.type, event.payload, event.producer) for event in emitted} == {
        ("b", "good", "node-1"),
        ("c", "good", "node-1"),
    }
    assert {event.causation_id for event in emitted} == {str(good)}


@requirement("EQ-13", "EQ-14")
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_collecting_handlers_are_each_on_their_own_and_none_is_run_again_that_succeeded(
    db: Database, kind: str
) -> None:
    db.sql("create table effects (who text)")
    queue = db.queue()
    id = queue.publish("a", max_retries=2, backoff={"kind": "fixed", "delay": 60}).id
    one = node(db, dispatch="collect", lease=OUTLASTS)
    runs: list[str] = []

    @one.on_event("a")
    async def good(event: Claimed) -> None:
        runs.append("good")

    @one.on_event("a")
    async def bad(event: Claimed) -> None:
        runs.append("bad")
        raise ValueError("no luck")

    if kind == "async":

        @one.on_event("a")
        async def writes(event: Claimed, connection: Any) -> None:
            runs.append("writes")
            await connection.execute("insert into effects values ('writes')")

    else:

        @one.on_event("a")
        def writes_plainly(event: Claimed, connection: Any) -> None:
            runs.append("writes")
            connection.execute("insert into effects values ('writes')")

    async with running(one):
        await until(lambda: queue.event(id).retry_count == 1)
        assert sorted(runs) == ["bad", "good", "writes"]
        db.advance(seconds=61)
        await until(lambda: queue.event(id).status == "COMPLETED_WITH_ERRORS")
    assert sorted(runs) == ["bad", "bad", "good", "writes"]
    assert db.sql("select who from effects") == [("writes",)]
    assert "no luck" in (queue.dead_letter(id).error or "")


async def test_what_one_of_several_gives_up_is_told_at_the_end(db: Database) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db, dispatch="collect")

    @one.on_event("a")
    async def gives_up(event: Claimed) -> Any:
        return Discard("no such customer")

    @one.on_event("a")
    async def good(event: Claimed) -> None: ...

    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED_WITH_ERRORS")
    assert "no such customer" in (queue.dead_letter(id).error or "")


@requirement("EQ-13", "G10")
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_what_one_of_several_saves_is_for_its_own_next_attempt_and_harms_no_other(
    db: Database, kind: str
) -> None:
    db.sql("create table effects (who text)")
    queue = db.queue()
    id = queue.publish("a", max_retries=3, backoff=0).id
    one = node(db, dispatch="collect")
    found: dict[str, list[Any]] = {"saves": [], "saves too": []}

    @one.on_event("a")
    async def writes(event: Claimed, connection: Any) -> None:
        await connection.execute("insert into effects values ('writes')")

    async def saves(context: AsyncContext) -> None:
        found["saves"].append(context.progress)
        await context.save(context.attempt)
        if context.attempt < 3:
            # As a crash would leave it: what is told at the end is not told.
            [kept] = (await one.queue.progress([id])).values()
            assert kept["done"] == [next(name for name in kept["done"] if name.endswith("writes"))]
            raise ValueError("once more")

    def saves_plainly(context: Context) -> None:
        found["saves"].append(context.progress)
        context.save(context.attempt)
        if context.attempt < 3:
            raise ValueError("once more")

    one.on_event("a")(saves if kind == "async" else saves_plainly)

    @one.on_event("a")
    async def saves_too(event: Claimed, context: AsyncContext) -> None:
        found["saves too"].append(context.progress)
        await context.save({"done": ["everything"]})
        if event.attempt < 2:
            raise ValueError("once more")

    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert found == {"saves": [None, 1, 2], "saves too": [None, {"done": ["everything"]}]}
    assert db.sql("select who from effects") == [("writes",)]


async def test_batches_are_batches_where_others_are_collected(db: Database) -> None:
    queue = db.queue()
    queue.publish_many([("a", n) for n in range(7)])
    one = node(db, dispatch="collect")
    seen: list[int] = []

    @one.on_batch("a", size=10)
    async def handle(events: list[Claimed]) -> None:
        seen.extend(event.payload for event in events)

    async with running(one):
        await until(lambda: queue.stats().completed == 7)
    assert sorted(seen) == list(range(7))
