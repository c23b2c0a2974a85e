"""A node over several shards: one set of slots, and what a shard that is down costs."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Claimed, NotStored
from headrace.errors import ShardMismatch, WrongShard
from headrace.node.health.port import HealthPort
from tests.client.shards import Shards, down, key_on
from tests.database import Server
from tests.node.nodes import OUTLASTS, node, running, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def db(server: Server) -> Iterator[Shards]:
    shards = Shards(server, 3)
    yield shards
    shards.close()


async def test_a_node_handles_the_events_of_all_shards_in_one_set_of_slots(db: Shards) -> None:
    with db.queue() as queue:
        ids = [queue.publish("a", n).id for n in range(30)]
    assert len(Counter(id % 64 for id in ids)) == 3
    one = node(db, concurrency=2)
    at_once, most = 0, 0
    handled: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0)
        handled.append(event.id)
        at_once -= 1

    async with running(one):
        await until(lambda: len(handled) == 30)
        await until(lambda: one.vitals().leases == 0)
        assert one.vitals().trouble is None
        assert one.vitals().shards == {"0": True, "1": True, "2": True}
        assert sum(one.vitals().ended.values()) == 30
    assert sorted(handled) == sorted(ids)
    assert most == 2


async def test_the_limit_of_a_handler_holds_for_all_shards_together(db: Shards) -> None:
    with db.queue() as queue:
        for n in range(12):
            queue.publish("a", n)
    one = node(db, concurrency=10)
    at_once, most, done = 0, 0, 0

    @one.on_event("a", concurrency=2)
    async def handle(event: Claimed) -> None:
        nonlocal at_once, most, done
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        done += 1

    async with running(one):
        await until(lambda: done == 12)
    assert most == 2


async def test_a_transactional_handler_works_in_the_database_of_its_event(db: Shards) -> None:
    for part in db.parts:
        part.sql("create table done (id bigint primary key)")
    one = node(db, concurrency=4, connections=2)
    refused: list[int | None] = []

    @one.on_event("a")
    def handle(event: Claimed, connection: Any, context: Any) -> None:
        connection.execute("insert into done values (%s)", [event.id])
        context.emit("b", key=event.payload)  # the home of the key is here
        try:
            with connection.transaction():
                context.emit("b", key=key_on((event.id % 64 + 1) % 3))
        except WrongShard as error:
            refused.append(error.home)

    with db.queue() as queue:
        keys = [key_on(n % 3, n) for n in range(6)]
        ids = [queue.publish("a", key, key=key).id for key in keys]
        async with running(one):
            await until(lambda: queue.stats().completed == 6)
        assert queue.stats().ready == 6  # of b
    for number, part in enumerate(db.parts):
        mine = sorted(id for id in ids if id % 64 == number)
        assert [id for (id,) in part.sql("select id from done order by id")] == mine
    assert len(refused) == 6


async def test_what_a_handler_emits_without_a_connection_finds_its_shard(db: Shards) -> None:
    one = node(db)
    emitted: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        for number in range(3):
            emitted.append((await one.emit("b", key=key_on(number))).id)

    with db.queue() as queue:
        cause = queue.publish("a").id
        async with running(one):
            await until(lambda: len(emitted) == 3)
        assert [id % 64 for id in emitted] == [0, 1, 2]
        assert queue.event(emitted[1]).causation_id == str(cause)


async def test_a_schedule_of_a_node_has_one_home(db: Shards) -> None:
    one = node(db)

    @one.every("0 3 * * *", name="nightly")
    async def nightly() -> None: ...

    with db.queue() as queue:
        async with running(one):
            await until(lambda: queue.schedules())
        assert [task.name for task in queue.schedules()] == ["nightly"]
    assert db.sql("select count(*) from headrace.scheduled_tasks") == [(1,)]


async def test_a_shard_that_is_down_costs_its_own_events(
    db: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    one = node(db, timeout=5)
    handled: list[Any] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        handled.append(event.payload)

    with db.queue() as queue, caplog.at_level(logging.WARNING):
        with down(db.parts[1]):
            async with running(one):
                for n in range(6):
                    queue.publish("a", n)
                await until(lambda: len(handled) == 6)
                vitals = one.vitals()
                assert vitals.trouble is None
                [(name, why)] = vitals.without.items()
                assert name.endswith(db.parts[1].name)
                assert "has not answered yet" in why
                async with HealthPort("127.0.0.1:0", one.vitals, prove=one._prove) as port:
                    said = await asyncio.to_thread(port.answer, "/readyz")
                assert said.status == 200
                assert f"without {name}" in said.body
                with pytest.raises(NotStored):
                    await one.queue.publish("a", key=key_on(1))
        one = node(db)
        one.on_event("a")(handle)
        async with running(one):
            late = queue.publish("a", "late", key=key_on(1))
            assert late.id % 64 == 1
            await until(lambda: "late" in handled)


async def test_a_shard_that_comes_later_is_worked_for(db: Shards) -> None:
    one = node(db, timeout=5)
    handled: list[Any] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        handled.append(event.id % 64)

    with db.queue() as queue:
        for number in range(3):
            queue.publish("a", key=key_on(number))
        gone = down(db.parts[2])
        gone.__enter__()
        try:
            await one.start()
            await until(lambda: sorted(handled) == [0, 1])
        finally:
            gone.__exit__(None, None, None)
        try:
            await until(lambda: sorted(handled) == [0, 1, 2])
        finally:
            await one.stop()


async def test_servers_of_which_none_answers_or_one_does_not_fit_are_refused(db: Shards) -> None:
    with pytest.raises(Exception, match="connection"):
        await node(db, dsn=["postgresql://127.0.0.1:1/a", "postgresql://127.0.0.1:1/b"]).start()
    with pytest.raises(ShardMismatch, match="both shard 0"):
        await node(db, dsn=[db.dsn[0], *db.dsn]).start()


async def test_a_retry_of_every_shard_becomes_due(db: Shards) -> None:
    """Each service ticks for its own shard."""
    one = node(db, lease=OUTLASTS)
    seen: Counter[int] = Counter()

    @one.on_event("a", max_retries=3, backoff=60)
    async def handle(event: Claimed) -> None:
        seen[event.id] += 1
        if seen[event.id] == 1:
            raise ValueError

    with db.queue() as queue:
        ids = [queue.publish("a", key=key_on(number)).id for number in range(3)]
        async with running(one):
            await until(lambda: all(queue.event(id).retry_count == 1 for id in ids))
            db.advance(seconds=61)
            await until(lambda: list(seen.values()) == [2, 2, 2])
