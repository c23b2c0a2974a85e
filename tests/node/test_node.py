import asyncio
import threading
from typing import Any

import psycopg
import pytest

from headrace import (
    Claimed,
    Context,
    Discard,
    Done,
    InvalidInput,
    NewEvent,
    Node,
    Retry,
)
from headrace.driver import watch
from tests.database import Database
from tests.node.nodes import OUTLASTS, node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

KINDS = pytest.mark.parametrize("kind", ["async", "plain"])


def handling(one: Node, kind: str, *types: str, **options: Any) -> list[Claimed]:
    """Register a handler that takes note of what it gets."""
    seen: list[Claimed] = []
    if kind == "async":

        @one.on_event(*types, **options)
        async def handle(event: Claimed) -> None:
            seen.append(event)

    else:

        @one.on_event(*types, **options)
        def handle_plainly(event: Claimed) -> None:
            seen.append(event)

    return seen


@KINDS
async def test_a_node_handles_what_it_has_handlers_for(db: Database, kind: str) -> None:
    queue = db.queue()
    ids = queue.publish_many([("order.created", {"n": 1}), ("order.paid", {"n": 2}), ("user", {})])
    one = node(db)
    seen = handling(one, kind, "order.*")
    async with running(one):
        await until(lambda: len(seen) == 2)
        await settled(one)
    assert {event.id: event.payload for event in seen} == {ids[0]: {"n": 1}, ids[1]: {"n": 2}}
    assert [queue.event(id).status for id in ids] == ["COMPLETED", "COMPLETED", "PENDING"]


@KINDS
async def test_a_node_at_rest_is_woken_by_an_event(db: Database, kind: str) -> None:
    queue = db.queue()
    one = node(db, idle=60)
    seen = handling(one, kind, "a")
    async with running(one):
        for n in range(1, 4):
            queue.publish("a")
            await until(lambda n=n: len(seen) == n)


async def test_a_node_that_finds_something_each_time_is_woken_each_time(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "SHORTEST", 3600.0)  # what a wake-up in vain costs, after a few
    queue = db.queue()
    one = node(db, idle=3600)
    seen = handling(one, "async", "a")
    async with running(one):
        for n in range(1, 4 * watch.SPARED):
            queue.publish("a")
            await until(lambda n=n: len(seen) == n)


@KINDS
async def test_a_handler_that_is_registered_with_a_running_node_gets_events_at_once(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    queue.publish_many([("a", {}), ("b", {})])
    one = node(db, idle=60)
    first = handling(one, kind, "a")
    async with running(one):
        await until(lambda: first)
        second = handling(one, kind, "b")
        await until(lambda: second)
        await settled(one)
    assert queue.stats().completed == 2


@KINDS
async def test_outcomes_end_the_event_as_they_say(db: Database, kind: str) -> None:
    queue = db.queue()
    outcomes = {"done": Done(204), "later": Retry(after=90), "never": Discard("no such customer")}
    ids = {name: queue.publish("a", name).id for name in outcomes}
    one = node(db)
    if kind == "async":

        @one.on_event("a")
        async def handle(event: Claimed) -> Any:
            return outcomes[event.payload]

    else:

        @one.on_event("a")
        def handle_plainly(event: Claimed) -> Any:
            return outcomes[event.payload]

    async with running(one):
        await until(lambda: queue.stats().attempts == 3)
    done, later, never = (queue.event(ids[name]) for name in outcomes)
    assert done.status == "COMPLETED"
    assert [entry.status_code for entry in queue.log(done.id)][-1] == 204
    assert (later.status, later.retry_count) == ("PENDING", 1)
    assert later.next_retry_at is not None
    assert never.status == "FAILED"
    assert queue.dead_letter(never.id).reason == "no such customer"


@KINDS
async def test_what_a_handler_raises_is_kept_and_the_event_comes_back(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db)
    raised: list[BaseException] = []
    one = node(db, on_error=lambda error, event: raised.append(error), lease=OUTLASTS)
    if kind == "async":

        @one.on_event("a", max_retries=2, backoff=60)
        async def handle(event: Claimed) -> None:
            raise ValueError(f"no luck with {event.id}")

    else:

        @one.on_event("a", max_retries=2, backoff=60)
        def handle_plainly(event: Claimed) -> None:
            raise ValueError(f"no luck with {event.id}")

    async with running(one):
        await until(lambda: queue.event(id).retry_count == 1)
        assert queue.event(id).status == "PENDING"
        db.advance(seconds=61)
        await until(lambda: queue.event(id).status == "FAILED")
    letter = queue.dead_letter(id)
    assert letter.error is not None
    assert f"ValueError: no luck with {id}" in letter.error
    assert "test_node.py" in letter.error
    assert [str(error) for error in raised] == [f"no luck with {id}"] * 2


async def test_no_more_handlers_run_at_once_than_the_node_or_the_handler_says(db: Database) -> None:
    queue = db.queue()
    queue.publish_many([("a", {})] * 40 + [("b", {})] * 10)
    one = node(db, concurrency=5)
    at_once = {"a": 0, "b": 0, "all": 0}
    most = dict(at_once)

    async def handle(event: Claimed) -> None:
        for kind in (event.type, "all"):
            at_once[kind] += 1
            most[kind] = max(most[kind], at_once[kind])
        await asyncio.sleep(0.002)
        for kind in (event.type, "all"):
            at_once[kind] -= 1

    one.on_event("a")(handle)

    @one.on_event("b", concurrency=1)
    async def one_at_a_time(event: Claimed) -> None:
        await handle(event)

    async with running(one):
        await until(lambda: queue.stats().completed == 50)
    assert most["all"] == 5
    assert most["b"] == 1


async def test_a_timeout_cancels_an_async_handler(db: Database) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    cancelled = []
    one = node(db)

    @one.on_event("a", timeout=0.05, max_retries=0)
    async def handle(event: Claimed) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append(event.id)
            raise

    @one.on_event("b")
    async def other(event: Claimed) -> None: ...

    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
        assert cancelled == [id]
        assert "not done after 0.05 seconds" in (queue.dead_letter(id).error or "")
        queue.publish("b")
        await until(lambda: queue.stats().completed == 1)


async def test_what_a_handler_leaves_in_its_context_is_not_there_for_the_next(db: Database) -> None:
    from contextvars import ContextVar

    variable: ContextVar[int] = ContextVar("variable", default=0)
    queue = db.queue()
    queue.publish_many([("a", {})] * 50)
    one = node(db)
    found = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        found.append(variable.get())
        variable.set(event.id)

    async with running(one):
        await until(lambda: len(found) == 50)
    assert set(found) == {0}


@KINDS
async def test_events_that_a_handler_emits_say_what_caused_them(db: Database, kind: str) -> None:
    queue = db.queue()
    first = queue.publish("a", trace_id="t-1").id
    one = node(db)
    if kind == "async":

        @one.on_event("a")
        async def handle(event: Claimed) -> None:
            await one.emit("b", {"from": event.id})

    else:

        @one.on_event("a")
        def handle_plainly(event: Claimed, context: Context) -> None:
            context.emit("b", {"from": event.id})

    seen = handling(one, kind, "b")
    async with running(one):
        await until(lambda: seen)
    assert seen[0].payload == {"from": first}
    assert (seen[0].correlation_id, seen[0].causation_id, seen[0].trace_id) == (
        str(first),
        str(first),
        "t-1",
    )


@KINDS
async def test_a_new_event_may_be_emitted(db: Database, kind: str) -> None:
    queue = db.queue()
    one = node(db, "emitter")
    if kind == "async":

        @one.on_event("a")
        async def handle(event: Claimed) -> None:
            await one.emit(NewEvent("b", {"from": event.id}))

    else:

        @one.on_event("a")
        def handle_plainly(event: Claimed, context: Context) -> None:
            context.emit(NewEvent("b", {"from": event.id}))

    seen = handling(one, kind, "b")
    async with running(one):
        first = await one.emit(NewEvent("a"))
        other = await one.emit(NewEvent("c", producer="another"))
        with pytest.raises(InvalidInput, match="a NewEvent and tags"):
            await one.emit(NewEvent("a"), tags=["x"])
        await until(lambda: seen)
    assert (seen[0].payload, seen[0].producer) == ({"from": first.id}, "emitter")
    assert seen[0].causation_id == str(first.id)
    assert [queue.event(id).producer for id in (first.id, other.id)] == ["emitter", "another"]


async def test_a_batch_is_handled_in_one_call(db: Database) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", {"n": n}) for n in range(25)])
    one = node(db)
    batches: list[list[int]] = []

    @one.on_batch("a", size=10)
    async def handle(events: list[Claimed]) -> Any:
        batches.append([event.id for event in events])
        return [Discard("odd") if event.payload["n"] % 2 else None for event in events]

    async with running(one):
        await until(lambda: sum(map(len, batches)) == 25)
        await settled(one)
    assert max(map(len, batches)) <= 10
    assert sorted(id for batch in batches for id in batch) == list(ids)
    assert [queue.event(id).status for id in ids[:4]] == ["COMPLETED", "FAILED"] * 2


async def test_plain_handlers_run_beside_each_other(db: Database) -> None:
    queue = db.queue()
    queue.publish_many([("a", {})] * 4)
    together = threading.Barrier(4, timeout=60)
    one = node(db, concurrency=4)

    @one.on_event("a")
    def handle(event: Claimed) -> None:
        together.wait()

    async with running(one):
        await until(lambda: queue.stats().completed == 4)


async def test_a_node_cannot_be_started_twice_nor_used_before(db: Database) -> None:
    one = node(db)
    with pytest.raises(Exception, match="not running"):
        await one.emit("a")
    async with running(one):
        with pytest.raises(InvalidInput, match="is already running"):
            await one.start()


def test_an_id_of_which_nothing_is_left_is_refused_where_the_node_is_made(db: Database) -> None:
    with pytest.raises(InvalidInput, match="must contain a letter or a digit"):
        node(db, "///")


@KINDS
@requirement("G4")
async def test_suspects_come_one_after_the_other_without_idle_times_in_between(
    db: Database, kind: str
) -> None:
    queue = db.queue(worker="dead")
    ids = queue.publish_many([("a", {})] * 8)
    queue.poll(max_events=8, lease=1)
    db.advance(seconds=2)
    one = node(db, idle=3600)
    seen = handling(one, kind, "a")
    async with running(one):
        await until(lambda: queue.stats().completed == 8)
    assert [(event.id, event.attempt, event.crashes) for event in seen] == [
        (id, 2, 0) for id in ids
    ]


@requirement("G4")
async def test_others_are_handled_beside_a_suspect_that_takes_long(db: Database) -> None:
    queue = db.queue(worker="dead")
    [suspect, next_one] = queue.publish_many([("a", {})] * 2)
    queue.poll(max_events=2, lease=1)
    db.advance(seconds=2)
    one = node(db, idle=3600)
    begun: list[int] = []
    may_end = asyncio.Event()

    @one.on_event("a")
    async def take_long(event: Claimed) -> None:
        begun.append(event.id)
        await may_end.wait()

    @one.on_event("b")
    async def handle(event: Claimed) -> None:
        begun.append(event.id)

    async with running(one):
        await until(lambda: begun == [suspect])
        others = queue.publish_many([("b", {})] * 20)
        await until(lambda: begun == [suspect, *others])
        may_end.set()
        await until(lambda: begun == [suspect, *others, next_one])


@pytest.mark.parametrize(
    ("queues", "nodes", "lasts"), [(None, None, 60), (600, None, 600), (600, 30, 30)]
)
async def test_a_node_that_says_no_lease_has_the_queues(
    db: Database, queues: int | None, nodes: int | None, lasts: int
) -> None:
    queue = db.queue()
    queue.change_queue("main", lease=queues)
    one = node(db, lease=nodes)
    held: list[float] = []

    @one.on_event("a")
    async def look(event: Claimed) -> None:
        stood = queue.event(event.id)
        assert stood.lease_expires_at is not None
        assert stood.processing_started_at is not None
        held.append((stood.lease_expires_at - stood.processing_started_at).total_seconds())

    queue.publish("a")
    async with running(one):
        await until(lambda: queue.stats().completed == 1)
    assert held == [lasts]


@KINDS
async def test_a_node_works_on_a_queue_that_requires_lease_tokens(db: Database, kind: str) -> None:
    """Ends of each kind, renewals and progress carry the token."""
    queue = db.queue()
    queue.change_queue("main", require_lease_token=True)
    db.sql("create table seen (id bigint)")
    one = node(db, lease=1)
    handling(one, kind, "plain")

    @one.on_event("failing")
    async def fail(event: Claimed) -> None:
        raise ValueError

    @one.on_event("long")
    async def last(event: Claimed, context: Context) -> None:
        await context.save(1)
        renewed = "select from headrace.leases where id = %s and extended_at is not null"
        await until(lambda: db.sql(renewed, [event.lease]))

    @one.on_event("transactional")
    async def write(event: Claimed, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("insert into seen values (%s)", [event.id])

    ids = queue.publish_many(
        [("plain", {})] * 20 + [("failing", {}), ("transactional", {})] * 2 + [("long", {})]
    )
    ended = ["COMPLETED"] * 20 + ["FAILED", "COMPLETED"] * 2 + ["COMPLETED"]
    async with running(one):
        await until(lambda: [queue.log(id)[-1].action for id in ids] == ended)
    assert {len(queue.log(id)) for id in ids} == {3}  # emitted, picked and ended, once
