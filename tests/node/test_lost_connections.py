"""Handlers whose connection is lost: only one that was alone with the loss is charged, and nothing that ends in order is."""

import asyncio
import contextlib
import os
import signal
from typing import Any

import psycopg
import pytest

from headrace import Claimed, EventQueue, Node
from tests.database import Database
from tests.engine.functions_helpers import stop_the_clock
from tests.faults.crashable import Crashable
from tests.faults.crashable import crashable as crashable  # the fixtures
from tests.faults.crashable import durable as durable
from tests.node.nodes import OUTLASTS, node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

KINDS = pytest.mark.parametrize("kind", ["async", "plain"])
DELAY = "select extract(epoch from due_at - headrace._now())::int from headrace.delayed"
KILL = "select pg_terminate_backend(pg_backend_pid())"


def counts(queue: EventQueue, id: int) -> tuple[str, int, int]:
    event = queue.event(id)
    return event.status, event.retry_count, event.crashes


def trail(db: Database, id: int) -> list[str]:
    query = "select action from headrace.event_log where event_id = %s"
    return [action for (action,) in db.sql(query, [id])]


def killing(one: Node, kind: str, starts: list[int], **options: Any) -> None:
    """Register a handler of an event that kills its backend each time."""
    if kind == "async":

        @one.on_event("poison", **options)
        async def handle(event: Claimed, connection: Any) -> None:
            starts.append(event.attempt)
            await connection.execute(KILL)

    else:

        @one.on_event("poison", **options)
        def handle_plainly(event: Claimed, connection: Any) -> None:
            starts.append(event.attempt)
            connection.execute(KILL)


@requirement("G9")
@KINDS
@pytest.mark.parametrize(("given", "most"), [(0, 2), (1, 2), (3, 4)])
async def test_an_event_that_always_kills_its_backend_starts_so_often_and_no_more(
    db: Database, kind: str, given: int, most: int
) -> None:
    queue = db.queue()
    id = queue.publish("poison", max_retries=given).id
    starts: list[int] = []
    one = node(db)
    killing(one, kind, starts)
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert starts == [*range(1, most + 1)]
    letter = queue.dead_letter(id)
    assert letter.reason == "Its handler lost the connection to PostgreSQL"
    assert "terminating connection" in (letter.error or "")


@requirement("G9")
async def test_what_the_handler_makes_of_a_lost_connection_does_not_matter(db: Database) -> None:
    queue = db.queue()
    id = queue.publish("a", max_retries=1).id
    starts: list[int] = []
    one = node(db)

    @one.on_event("a")
    async def handle(event: Claimed, connection: Any) -> None:
        starts.append(event.attempt)
        if event.attempt == 1:
            async with asyncio.TaskGroup() as tasks:  # which raises a group of errors
                tasks.create_task(connection.execute(KILL))

    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert counts(queue, id) == ("COMPLETED", 0, 0)


@requirement("G9")
async def test_of_handlers_that_are_cut_off_together_none_is_charged(db: Database) -> None:
    queue = db.queue()
    ids = [queue.publish("slow", max_retries=1) for _ in range(8)]
    begun: list[int] = []
    go_on = asyncio.Event()
    one = node(db, concurrency=8, connections=8)

    @one.on_event("slow")
    async def handle(event: Claimed, connection: Any) -> None:
        begun.append(event.id)
        await go_on.wait()
        await connection.execute("select 1")

    async with running(one):
        await until(lambda: len(begun) == 8)
        db.sql(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and state = 'idle in transaction'"
        )
        go_on.set()
        await until(lambda: queue.stats().completed == 8)
    assert [counts(queue, event.id) for event in ids] == [("COMPLETED", 0, 0)] * 8


@requirement("G9")
async def test_orderly_releases_and_one_cut_connection_charge_nobody(db: Database) -> None:
    queue = db.queue()
    id = queue.publish("a", max_retries=1).id
    starts: list[int] = []

    async def handle(event: Claimed, connection: Any) -> None:
        starts.append(event.attempt)
        if len(starts) <= 6:
            await asyncio.Event().wait()
        if len(starts) == 7:
            await connection.execute(KILL)

    for deploy in range(1, 7):
        one = node(db, grace=0)
        one.on_event("a")(handle)
        async with running(one):
            await until(lambda n=deploy: len(starts) == n)
        db.advance(minutes=1)
    one = node(db)
    one.on_event("a")(handle)
    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert counts(queue, id) == ("COMPLETED", 0, 0)
    assert starts == [*range(1, 9)]


@requirement("G9")
async def test_a_connection_that_was_cut_before_the_handler_began_suspects_nobody(
    db: Database,
) -> None:
    queue = db.queue()
    starts: list[int] = []
    one = node(db, concurrency=1, connections=1)

    @one.on_event("a")
    async def handle(event: Claimed, connection: Any) -> int:
        starts.append(connection.info.backend_pid)
        return 200

    async with running(one):
        queue.publish("a")
        await until(lambda: queue.stats().completed == 1)
        await settled(one)
        db.sql("select pg_terminate_backend(%s, 5000)", [starts[0]])
        id = queue.publish("a", max_retries=1).id
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert len(starts) == 2, "it began once"
    assert "ABANDONED" not in trail(db, id)


@requirement("G9")
async def test_a_handler_whose_task_is_cancelled_each_time_does_not_run_hot(db: Database) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    starts: list[int] = []
    one = node(db, idle=0.05, lease=OUTLASTS)

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        starts.append(event.attempt)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    stop_the_clock(db)
    delays = []
    async with running(one):
        for times in range(2, 7):  # the first comes back at once
            await until(lambda n=times: len(starts) == n and db.sql(DELAY))
            delays += db.sql(DELAY)
            found = {one.code for one in queue.attention()}
            assert ("released_often" in found) is (times >= 5)
            db.advance(minutes=1)
    assert delays == [(1,), (2,), (4,), (8,), (16,)]
    assert counts(queue, id) == ("PENDING", 0, 0)


@requirement("G9")
@pytest.mark.long
async def test_an_event_that_crashes_the_server_takes_no_neighbours_along(
    crashable: Crashable,
) -> None:
    """A process of PostgreSQL that is killed takes all sessions with it. The server tells them that it was another one."""
    queue = crashable.db.queue()
    slow = [queue.publish("slow", max_retries=1) for _ in range(8)]
    poison = queue.publish("poison", max_retries=3).id
    starts: list[int] = []
    crashes: list[int] = []
    at_work: set[int] = set()
    is_dead = asyncio.Event()

    async def crash(event: Claimed, connection: Any) -> None:
        starts.append(event.attempt)
        await until(lambda: len(at_work) >= 4)
        os.kill(connection.info.backend_pid, signal.SIGKILL)
        crashes.append(event.attempt)
        await connection.execute("select 1")

    async def be_slow(event: Claimed, connection: Any) -> None:
        so_far = len(crashes)
        at_work.add(event.id)
        await until(lambda: len(crashes) > so_far or is_dead.is_set())
        at_work.discard(event.id)
        await connection.execute("select 1")

    def are(status: str, *ids: int) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            return all(queue.event(id).status == status for id in ids)
        return False

    nodes = [
        node(crashable.db, f"node-{n}", concurrency=8, connections=8, idle=0.05) for n in (1, 2)
    ]
    for one in nodes:
        one.on_event("poison")(crash)
        one.on_event("slow")(be_slow)
    async with running(*nodes):
        await until(lambda: are("FAILED", poison))
        is_dead.set()
        await until(lambda: are("COMPLETED", *(event.id for event in slow)))
    crashable.revive()
    queue = crashable.db.queue()
    assert starts == [1, 2, 3, 4]
    assert [counts(queue, event.id) for event in slow] == [("COMPLETED", 0, 0)] * 8


@requirement("G9")
@pytest.mark.long
async def test_a_restart_of_the_server_suspects_nobody(crashable: Crashable) -> None:
    queue = crashable.db.queue()
    id = queue.publish("a", max_retries=1).id
    starts: list[int] = []
    go_on = asyncio.Event()
    one = node(crashable.db, idle=0.05)

    @one.on_event("a")
    async def handle(event: Claimed, connection: Any) -> None:
        starts.append(event.attempt)
        if len(starts) < 3:
            await go_on.wait()
            go_on.clear()
            await connection.execute("select 1")

    async with running(one):
        for times in (1, 2):
            await until(lambda n=times: len(starts) == n)
            await asyncio.to_thread(crashable.stop, signal.SIGINT)
            await asyncio.to_thread(crashable.revive)
            go_on.set()
        queue = crashable.db.queue()
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert counts(queue, id) == ("COMPLETED", 0, 0)
    assert "ABANDONED" not in trail(crashable.db, id)
