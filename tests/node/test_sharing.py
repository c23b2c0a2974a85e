"""What handlers, lanes and nodes share: slots, threads, the queue; and that none of them goes short."""

import asyncio
import threading
import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from headrace import Claimed, Node
from headrace.driver import watch as watches
from headrace.node.runner import NodeRunner
from headrace.telemetry.current import running as running_context
from tests.database import Database
from tests.node.nodes import node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio


@requirement("PG-16")
async def test_plain_and_async_handlers_of_one_lane_each_get_their_own_events(db: Database) -> None:
    queue = db.queue()
    queue.publish_many([("plain" if n % 3 else "async", n) for n in range(1500)])
    one = node(db, concurrency=4)
    seen: Counter[tuple[str, str]] = Counter()

    @one.on_event("plain")
    def plain(event: Claimed) -> None:
        seen["plain", event.type] += 1

    @one.on_event("async")
    async def awaited(event: Claimed) -> None:
        seen["async", event.type] += 1
        if event.id % 7 == 0:
            await asyncio.sleep(0)

    async with running(one):
        await until(lambda: queue.stats().completed == 1500)
    assert seen == {("plain", "plain"): 1000, ("async", "async"): 500}


@requirement("PG-17", "G15")
async def test_a_slow_node_leaves_to_others_what_it_cannot_start_soon(db: Database) -> None:
    queue = db.queue()
    queue.publish_many([("a", {})] * 40)
    slow, other = node(db, "slow", concurrency=2), node(db, "other", concurrency=2)
    go_on = asyncio.Event()
    seen: Counter[str] = Counter()

    def handled_by(one: Node) -> None:
        @one.on_event("a")
        async def handle(event: Claimed) -> None:
            seen[one.settings.node_id] += 1
            if one is slow:
                await go_on.wait()

    handled_by(slow)
    handled_by(other)
    async with running(slow):
        await until(lambda: seen["slow"] == 2)
        await asyncio.sleep(0.1)
        assert slow.vitals().buffered == 0
        async with running(other):
            await until(lambda: seen["other"] >= 34)
            go_on.set()
            await until(lambda: queue.stats().completed == 40)


@requirement("PG-18", "G19")
async def test_an_idle_node_polls_as_often_as_it_says(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "LOOKS", ())
    one = node(db, idle=0.2)
    polls: list[float] = []
    claim = NodeRunner.claim

    async def counted(self: NodeRunner, *arguments: Any) -> list[Claimed]:
        polls.append(time.monotonic())
        return await claim(self, *arguments)

    monkeypatch.setattr(NodeRunner, "claim", counted)

    @one.on_event("a")
    async def handle(event: Claimed) -> None: ...

    async with running(one):
        await until(lambda: len(polls) == 5)
    # The second is the one more look of one who has just lain down.
    assert all(later - earlier >= 0.19 for earlier, later in pairwise(polls[1:]))


async def test_a_handler_that_takes_no_time_has_hundreds_at_hand(db: Database) -> None:
    queue = db.queue()
    for _ in range(4):
        queue.publish_many([("a", {})] * 1000)
    one = node(db, concurrency=10)
    at_hand: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        at_hand.append(one._running().buffered)

    async with running(one):
        await until(lambda: len(at_hand) == 4000)
    assert max(at_hand) >= 200


async def test_batches_are_filled_though_one_runs_at_a_time(db: Database) -> None:
    queue = db.queue()
    queue.publish_many([("a", {})] * 60)
    one = node(db)
    sizes: list[int] = []

    @one.on_batch("a", size=20, concurrency=1)
    async def handle(events: list[Claimed]) -> None:
        sizes.append(len(events))
        await asyncio.sleep(0.3)

    async with running(one):
        await until(lambda: sum(sizes) == 60)
    assert sizes == [20, 20, 20]


@requirement("G15")
async def test_no_lane_goes_short_while_another_has_much_to_do(db: Database) -> None:
    queue = db.queue()
    queue.publish_many([("much", {})] * 900)
    one = node(db, concurrency=2)
    seen: list[str] = []

    @one.on_event("much")
    async def much(event: Claimed) -> None:
        seen.append("much")
        await asyncio.sleep(0 if {"little", "written"} <= set(seen) else 0.002)

    @one.on_event("little", tags=["other"])
    async def little(event: Claimed) -> None:
        seen.append("little")

    @one.on_event("written", tags=["third"], concurrency=1)
    async def written(event: Claimed, connection: Any) -> None:
        seen.append("written")

    async with running(one):
        await until(lambda: len(seen) > 10)
        queue.publish("little", tags=["other"])
        queue.publish("written", tags=["third"])
        await until(lambda: {"little", "written"} <= set(seen))
        assert seen.count("much") < 900, "they came in between"
        await until(lambda: queue.stats().completed == 902)


async def test_a_transaction_with_a_limit_of_its_own_gets_a_slot_when_others_give_one_back(
    db: Database,
) -> None:
    queue = db.queue()
    queue.publish("busy")
    one = node(db, concurrency=1, idle=60)
    go_on = asyncio.Event()
    seen: list[str] = []

    @one.on_event("busy")
    async def busy(event: Claimed) -> None:
        seen.append("busy")
        await go_on.wait()

    async with running(one):
        await until(lambda: seen)

        @one.on_event("written", concurrency=1)
        async def written(event: Claimed, connection: Any) -> None:
            seen.append("written")

        queue.publish("written")
        await asyncio.sleep(0.05)  # for a poll that must not claim what it cannot start
        go_on.set()
        await until(lambda: seen == ["busy", "written"])
        await settled(one)


@requirement("G11")
async def test_events_of_one_key_are_handled_one_at_a_time_and_in_order(db: Database) -> None:
    queue = db.queue()
    for n in range(30):
        queue.publish("a", n, key=f"k{n % 3}")
    nodes = node(db, "one"), node(db, "two")
    running_keys: set[str] = set()
    seen: dict[str, list[int]] = {"k0": [], "k1": [], "k2": []}

    async def handle(event: Claimed) -> None:
        key = f"k{event.payload % 3}"
        assert key not in running_keys
        running_keys.add(key)
        await asyncio.sleep(0)
        seen[key].append(event.payload)
        running_keys.discard(key)

    for one in nodes:
        one.on_event("a")(handle)
    async with running(*nodes):
        await until(lambda: queue.stats().completed == 30)
    assert all(numbers == sorted(numbers) for numbers in seen.values())


async def test_what_is_urgent_is_handled_first(db: Database) -> None:
    queue = db.queue()
    for priority in (9, 5, 1):
        queue.publish("a", priority, priority=priority)
    one = node(db, concurrency=1)
    seen: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        seen.append(event.payload)

    async with running(one):
        await until(lambda: len(seen) == 3)
    assert seen == sorted(seen) or seen == sorted(seen, reverse=True)


@requirement("PG-1", "EB-10")
async def test_nodes_of_one_process_share_a_queue_or_have_each_their_own(db: Database) -> None:
    queue = db.queue()
    queue.create_queue("billing", types=["order.*"])
    seen: Counter[str] = Counter()
    nodes = [
        node(db, "main-1"),
        node(db, "main-2"),
        node(db, "billing", queue="billing"),
    ]
    for one in nodes:

        @one.on_event("*")
        async def handle(event: Claimed, name: str = one.settings.queue) -> None:
            seen[name] += 1

    async with running(*nodes):
        queue.publish_many([("order.paid", {})] * 20 + [("user.created", {})] * 5)
        await until(lambda: seen == {"main": 25, "billing": 20})
    assert {one.node_id for one in queue.nodes()} == {"main-1", "main-2", "billing"}


async def test_a_queue_may_be_paused_resumed_and_drained_under_a_node(db: Database) -> None:
    queue = db.queue()
    one = node(db, idle=0.05)
    seen: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        seen.append(event.payload)

    async with running(one):
        queue.pause()
        queue.publish("a", 1)
        polls = db.sql("select count(*) from headrace.leases")
        await asyncio.sleep(0.15)
        assert seen == []
        assert db.sql("select count(*) from headrace.leases") == polls
        queue.resume()
        await until(lambda: seen == [1])
        queue.publish("a", 2)
        queue.drain()
        await until(lambda: seen == [1, 2])
        queue.resume()
        queue.publish("a", 3)
        await until(lambda: seen == [1, 2, 3])


async def test_a_queue_that_is_deleted_under_a_node_is_said_once_and_may_come_back(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    queue.create_queue("billing")
    queue.publish_many([("a", {})] * 5)
    one = node(db, queue="billing", concurrency=3, idle=60)
    started: list[int] = []
    go_on = asyncio.Event()

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        started.append(event.id)
        await go_on.wait()

    async with running(one):
        await until(lambda: len(started) == 3)
        queue.delete_queue("billing", with_deliveries=True)
        go_on.set()
        await settled(one)
        await until(lambda: one.vitals().trouble)
        queue.create_queue("billing")
        queue.publish("a")
        await until(lambda: one.vitals().trouble is None)
        await until(lambda: len(started) == 4)
        await settled(one)
        queue.publish("a")
        await until(lambda: len(started) == 5)
    assert caplog.text.count("trying again, because") == 1
    assert caplog.text.count("it works again") == 1
    assert "ends has ended" not in caplog.text


@requirement("G18")
async def test_an_event_that_cannot_be_read_is_dead_lettered_alone(db: Database) -> None:
    queue = db.queue()
    bad, good, deeper = queue.publish_many([("a", {"n": n}) for n in range(3)])
    # Nobody can publish these; somebody may have written them by hand.
    db.sql("update headrace.events set payload = '1e4400' where id = %s", [bad])
    deep = "[" * 5000 + "]" * 5000
    db.sql("update headrace.events set payload = %s::jsonb where id = %s", [deep, deeper])
    one = node(db)
    seen: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        seen.append(event.id)

    async with running(one):
        await until(lambda: queue.event(good).status == "COMPLETED")
        await until(lambda: len(queue.dead_letters()) == 2)
    assert seen == [good]
    assert {letter.id: letter.reason for letter in queue.dead_letters()} == dict.fromkeys(
        [bad, deeper], "Its payload cannot be read"
    )


async def test_what_a_handler_leaves_running_is_not_taken_for_the_next_event(db: Database) -> None:
    queue = db.queue()
    first = queue.publish("first").id
    one = node(db, concurrency=1)
    late: list[asyncio.Task[None]] = []
    emit, emitted = asyncio.Event(), asyncio.Event()

    @one.on_event("first")
    async def leaves(event: Claimed, connection: Any) -> None:
        async def later() -> None:
            await emit.wait()
            await one.emit("late")
            emitted.set()

        late.append(asyncio.create_task(later()))

    @one.on_event("second")
    async def fails(event: Claimed, connection: Any) -> None:
        emit.set()
        await emitted.wait()
        raise ValueError("what I wrote is rolled back")

    async with running(one):
        await until(lambda: queue.event(first).status == "COMPLETED")
        second = queue.publish("second", max_retries=0).id
        await until(lambda: queue.event(second).status == "FAILED")
    [found] = queue.events(types=["late"]).events
    assert found.causation_id is None


async def test_a_context_is_one_however_often_it_is_asked_for(db: Database) -> None:
    queue = db.queue()
    queue.publish_many([("async", {}), ("plain", {})])
    one = node(db)
    asked: list[set[int]] = []

    @one.on_event("async")
    async def awaited(event: Claimed) -> None:
        asked.append({id(running_context()) for _ in range(100)})

    @one.on_event("plain")
    def plain(event: Claimed) -> None:
        asked.append({id(running_context()) for _ in range(100)})

    async with running(one):
        await until(lambda: len(asked) == 2)
    assert [len(contexts) for contexts in asked] == [1, 1]


async def test_threads_end_with_their_node(db: Database) -> None:
    queue = db.queue()
    queue.publish_many([("a", {})] * 10)
    one = node(db, "threaded")

    @one.on_event("a")
    def handle(event: Claimed) -> None:
        time.sleep(0.001)

    async with running(one):
        await until(lambda: queue.stats().completed == 10)
    await until(
        lambda: not [t for t in threading.enumerate() if t.name.startswith("headrace threaded")]
    )


async def test_who_slept_at_a_queue_that_is_gone_is_woken_by_the_next_of_its_name(
    db: Database,
) -> None:
    queue = db.queue()
    queue.create_queue("billing")
    one = node(db, queue="billing", idle=60)
    seen: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        seen.append(event.id)

    async with running(one):
        [consumer] = one._running().consumers.values()
        await until(lambda: consumer._nap)
        queue.delete_queue("billing")
        consumer.look_again()
        await until(lambda: one.vitals().trouble)
        queue.create_queue("billing")
        await until(lambda: one.vitals().trouble is None and consumer._nap)
        queue.publish("a")
        await until(lambda: seen)
