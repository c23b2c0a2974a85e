"""Every call of the async client, cancelled at each of its awaits: the pool loses nothing, and the next call works."""

import asyncio
import inspect
import math
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any

import pytest
from psycopg.pq import TransactionStatus

import headrace
from headrace import AsyncEventQueue, Completed
from headrace.async_client import sessions
from headrace.driver.async_pool import AsyncSessions
from headrace.driver.runner import AsyncRunner
from headrace.node.run.transaction import Ending, Pools, async_transaction
from tests.cancelling import PATIENCE, cancel_everywhere
from tests.database import Database
from tests.node.nodes import until
from tests.requirements import requirement

pytestmark = pytest.mark.one_database("how a client reaches one server")

Call = Callable[[AsyncEventQueue, int], Any]


async def replay(queue: AsyncEventQueue) -> None:
    async for _ in queue.replay():
        pass


async def export(queue: AsyncEventQueue) -> list[bytes]:
    async with aclosing(queue.export_state()) as lines:  # type: ignore[type-var]
        return [line async for line in lines]


async def transfer(queue: AsyncEventQueue) -> None:
    await queue.import_state(await export(queue))


async def end(queue: AsyncEventQueue, end: Callable[[Any], Any]) -> None:
    """Claim an event and end the attempt: both calls may be cancelled."""
    for claimed in await queue.poll(lease=600):
        await end(claimed)


CALLS: dict[str, Call] = {
    "publish": lambda q, id: q.publish("a"),
    "publish_many": lambda q, id: q.publish_many([("a", {})] * 300),
    "poll": lambda q, id: q.poll(max_events=3),
    "poll_one": lambda q, id: q.poll_one(),
    "complete": lambda q, id: end(q, q.complete),
    "fail": lambda q, id: end(q, lambda c: q.fail(c, "no")),
    "release": lambda q, id: end(q, q.release),
    "finalize": lambda q, id: end(q, q.finalize),
    "finish": lambda q, id: end(q, lambda c: q.finish([Completed(c)])),
    "extend": lambda q, id: end(q, q.extend),
    "resolve": lambda q, id: end(q, q.resolve),
    "save_progress": lambda q, id: end(q, lambda c: q.save_progress(c, 1)),
    "progress": lambda q, id: q.progress([id]),
    "cancel": lambda q, id: q.cancel(id),
    "reset": lambda q, id: q.reset(id),
    "rerun": lambda q, id: q.rerun(id),
    "redrive": lambda q, id: q.redrive(),
    "purge": lambda q, id: q.purge("ready"),
    "erase": lambda q, id: q.erase(id),
    "namespaces": lambda q, id: q.namespaces(),
    "create_namespace": lambda q, id: q.create_namespace("other"),
    "change_namespace": lambda q, id: q.change_namespace("default", metadata={}),
    "delete_namespace": lambda q, id: q.delete_namespace("other"),
    "event": lambda q, id: q.event(id),
    "events": lambda q, id: q.events(),
    "log": lambda q, id: q.log(id),
    "create_queue": lambda q, id: q.create_queue("other"),
    "change_queue": lambda q, id: q.change_queue("main", batch_size=10),
    "delete_queue": lambda q, id: q.delete_queue("other"),
    "queue": lambda q, id: q.queue(),
    "queues": lambda q, id: q.queues(),
    "pause": lambda q, id: q.pause(),
    "resume": lambda q, id: q.resume(),
    "drain": lambda q, id: q.drain("other"),
    "wait_for_capacity": lambda q, id: q.wait_for_capacity(),
    "log_since": lambda q, id: q.log_since(),
    "dead_letters": lambda q, id: q.dead_letters(),
    "dead_letter": lambda q, id: q.dead_letter(id),
    "dead_letter_groups": lambda q, id: q.dead_letter_groups(),
    "workers": lambda q, id: q.workers(),
    "nodes": lambda q, id: q.nodes(),
    "unhandled_types": lambda q, id: q.unhandled_types(),
    "schedule_task": lambda q, id: q.schedule_task("s", "* * * * *"),
    "schedules": lambda q, id: q.schedules(),
    "pause_schedule": lambda q, id: q.pause_schedule("s"),
    "resume_schedule": lambda q, id: q.resume_schedule("s"),
    "run_schedule": lambda q, id: q.run_schedule("s"),
    "remove_schedule": lambda q, id: q.remove_schedule("s"),
    "plan_schedules": lambda q, id: q.plan_schedules(),
    "shard_of": lambda q, id: q.shard_of("k"),
    "admin_log": lambda q, id: q.admin_log(),
    "create_token": lambda q, id: q.create_token("t", ["publish"]),
    "tokens": lambda q, id: q.tokens(),
    "revoke_token": lambda q, id: q.revoke_token("t"),
    "bind_role": lambda q, id: q.bind_role("headrace_reader", ["default"]),
    "bound_roles": lambda q, id: q.bound_roles(),
    "unbind_role": lambda q, id: q.unbind_role("headrace_reader"),
    "limits": lambda q, id: q.limits(),
    "stats": lambda q, id: q.stats(),
    "history": lambda q, id: q.history(),
    "attention": lambda q, id: q.attention(),
    "story": lambda q, id: q.story(id),
    "why": lambda q, id: q.why(id),
    "find_events": lambda q, id: q.find_events(str(id)),
    "state": lambda q, id: q.state(),
    "save_state": lambda q, id: q.save_state(),
    "low_water": lambda q, id: q.low_water(),
    "checkpoint": lambda q, id: q.checkpoint(),
    "checkpoints": lambda q, id: q.checkpoints(),
    "recoveries": lambda q, id: q.recoveries(),
    "replay": lambda q, id: replay(q),
    "export_state": lambda q, id: export(q),
    "import_state": lambda q, id: transfer(q),
    "tick": lambda q, id: q.tick(),
}


@asynccontextmanager
async def one_connection(db: Database) -> AsyncIterator[AsyncSessions]:
    async with sessions(db.dsn, 1, prepare=True) as pool:
        await pool.wait()
        yield pool


async def whole(pool: AsyncSessions) -> None:
    """Its one connection can be had, and is in order."""
    session = await pool.getconn()
    try:
        cursor = await session.execute("select 1")
        assert await cursor.fetchone() == (1,)
    finally:
        await pool.putconn(session)
    assert (pool.replaced, pool.dropped) == (0, []), "a connection was lost and had to be replaced"


def test_every_call_is_here() -> None:
    methods = inspect.getmembers(AsyncEventQueue, inspect.isfunction)
    running = {name for name, _ in inspect.getmembers(AsyncRunner, inspect.isfunction)}
    calls = (
        {name for name, _ in methods if not name.startswith("_")} - running - {"close", "decode"}
    )
    assert calls - set(CALLS) == set(), "CALLS, above, needs an example of these"
    assert set(CALLS) - calls == set(), "CALLS has these, and the clients do not"


@pytest.mark.anyio
@pytest.mark.parametrize("name", CALLS)
async def test_a_call_may_be_cancelled_at_every_await(db: Database, name: str) -> None:
    async with one_connection(db) as pool:
        queue = AsyncEventQueue(pool)
        id = (await queue.publish_many([("a", {})] * 5))[0]
        calls = await cancel_everywhere(lambda: CALLS[name](queue, id), lambda told: whole(pool))
        assert calls > 0
        assert (await queue.publish("after")).id


@pytest.mark.anyio
@requirement("PG-25")
async def test_a_call_may_be_cancelled_while_the_pool_is_busy(db: Database) -> None:
    """The pool wants its connection back at once, and has its lock taken by another until the call waits for it."""
    async with one_connection(db) as pool:
        queue = AsyncEventQueue(pool)
        pool._settle_at = math.inf  # the connection stays at hand
        await queue.publish("a")

        async def let_go(call: "asyncio.Task[Any]") -> None:
            while not pool._lock._waiters and not call.done():  # noqa: ASYNC110
                await asyncio.sleep(0)
            pool._lock.release()

        async def call() -> None:
            pool._settle_at = 0.0
            await pool._lock.acquire()
            task = asyncio.current_task()
            assert task is not None
            releasing.append(asyncio.create_task(let_go(task)))
            await queue.publish("a")

        async def check(told: str) -> None:
            await releasing.pop()
            pool._settle_at = math.inf
            await whole(pool)

        releasing: list[asyncio.Task[None]] = []
        assert await cancel_everywhere(call, check) > 0


@pytest.mark.anyio
async def test_a_claim_whose_caller_was_cancelled_lasts_no_longer_than_its_lease(
    db: Database,
) -> None:
    async with one_connection(db) as pool:
        queue = AsyncEventQueue(pool)
        await queue.publish_many([("a", {})] * 20)

        async def check(told: str) -> None:
            await whole(pool)
            db.advance(seconds=61)
            await queue.tick()
            assert set(map(tuple, db.placement().values())) == {("ready",)}, told

        await cancel_everywhere(lambda: queue.poll(max_events=20, lease=60), check)


@pytest.mark.anyio
async def test_a_pool_replaces_a_connection_that_was_dropped(db: Database) -> None:
    async with one_connection(db) as pool:
        await pool.getconn()  # and nobody gives it back
        await asyncio.wait_for(pool.putconn(await pool.getconn()), PATIENCE)
        assert pool.replaced == 1


def test_a_plain_pool_replaces_a_connection_that_was_dropped(db: Database) -> None:
    queue = db.queue(pool_size=1)
    assert queue._source.getconn()
    queue.publish("a")
    assert queue._source.replaced == 1


@pytest.mark.anyio
async def test_opening_may_be_cancelled_at_every_await(db: Database) -> None:
    async def call() -> None:
        async with headrace.connect_async(db.dsn, pool_size=2) as queue:
            await queue.publish("a")

    def ours() -> list[tuple[int]]:
        return db.sql("select pid from pg_stat_activity where application_name = 'headrace'")

    async def check(told: str) -> None:
        await asyncio.to_thread(db.wait_for, lambda: ours() == [])

    await cancel_everywhere(call, check)


@pytest.mark.anyio
async def test_a_transaction_of_a_handler_may_be_cancelled_at_every_await(db: Database) -> None:
    db.sql("create table effects (n int)")
    pools = Pools(db.dsn, 1, prepare=True)
    async with AsyncExitStack() as opened:
        opened.push_async_callback(pools.close)
        queue = await opened.enter_async_context(db.async_queue())
        pool = await pools.for_async()

        async def call() -> None:
            await queue.publish("a")
            [claimed] = await queue.poll(each=True)
            ending = Ending(("default", "main"), [claimed], "a handler", lambda: 1)
            async with async_transaction(pool, ending) as connection:
                await connection.execute("insert into effects values (1)")

        async def check(told: str) -> None:
            await whole(pool)
            effects = db.sql("select from effects")
            completed = [place for place in db.placement().values() if place == ["outcome"]]
            assert len(effects) == len(completed), told
            for claimed in await queue.poll(max_events=100, each=True):  # not this call's
                await queue.release(claimed)

        await cancel_everywhere(call, check)


@pytest.mark.anyio
async def test_a_cancelled_call_does_not_wait_for_a_server_that_does_not_answer(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "headrace.driver.async_pool.ABANDON", math.inf
    )  # for what is done behind the call
    async with one_connection(db) as pool:
        session = await pool.getconn()
        pid = session.info.backend_pid
        os.kill(pid, signal.SIGSTOP)
        try:
            asking = asyncio.create_task(session.command(b"begin"))
            await until(lambda: session.pgconn.transaction_status == TransactionStatus.ACTIVE)
            asking.cancel()
            async with asyncio.timeout(PATIENCE):
                await asyncio.wait([asking])
            assert asking.cancelled()
        finally:
            os.kill(pid, signal.SIGCONT)
            await pool.putconn(session)
