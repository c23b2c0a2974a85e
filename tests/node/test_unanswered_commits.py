"""Transactions of handlers whose COMMIT is not answered, or is answered without the synchronous standby."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from headrace import Claimed, Node
from tests.faults.awaited import Awaiting
from tests.faults.awaited import awaiting as awaiting  # the fixtures
from tests.faults.awaited import awaiting_server as awaiting_server
from tests.node.nodes import node, running, settled, until
from tests.requirements import requirement

pytestmark = [pytest.mark.anyio, requirement("G10", "G20")]

# Of all that a node commits, only this waits for the standby.
WORK = ("set local synchronous_commit = on", "insert into effects values ({})")


@pytest.fixture
def db(awaiting: Awaiting) -> Iterator[Awaiting]:
    awaiting.sql("create table effects (event bigint)")
    awaiting.sql(f"alter database {awaiting.name} set synchronous_commit = local")
    with awaiting.nobody_follows():
        yield awaiting


def is_async(node: Node, began: Callable[[int], None]) -> None:
    @node.on_event("a")
    async def handle(event: Claimed, connection: psycopg.AsyncConnection[Any]) -> None:
        began(event.id)
        for work in WORK:
            await connection.execute(work.format(event.id))


def is_plain(node: Node, began: Callable[[int], None]) -> None:
    @node.on_event("a")
    def handle(event: Claimed, connection: psycopg.Connection[Any]) -> None:
        began(event.id)
        for work in WORK:
            connection.execute(work.format(event.id))


def is_of_batch(node: Node, began: Callable[[int], None]) -> None:
    """Whose end and COMMIT are sent one after the other."""

    @node.on_batch("a", size=2)
    async def handle(events: list[Claimed], connection: psycopg.AsyncConnection[Any]) -> None:
        for event in events:
            began(event.id)
            for work in WORK:
                await connection.execute(work.format(event.id))


def is_one_of_several(node: Node, began: Callable[[int], None]) -> None:
    """Each of which commits what it has done and the note of it."""
    is_async(node, began)

    @node.on_event("a")
    def another(event: Claimed) -> None: ...


@pytest.mark.parametrize("its_time_is_up", [False, True], ids=["cancelled", "time is up"])
@pytest.mark.parametrize("handler", [is_async, is_plain, is_of_batch, is_one_of_several])
async def test_it_is_found_out_whether_it_was_committed(
    db: Awaiting, handler: Any, its_time_is_up: bool
) -> None:
    """Its wait is broken off, by an operator or because its time is up: PostgreSQL has committed it."""
    queue = db.queue()
    id = queue.publish("a").id
    began: list[int] = []
    one = node(
        db,
        timeout=2 if its_time_is_up else 60,
        dispatch="collect" if handler is is_one_of_several else "atomic",
    )
    handler(one, began.append)
    async with running(one):
        await asyncio.to_thread(db.wait_until_waiting)
        if not its_time_is_up:
            db.end_waits()
        await until(lambda: queue.stats().completed == 1)
        await settled(one)
    assert began == [id]
    assert db.sql("select event from effects") == [(id,)]
    assert [entry.action for entry in queue.log(id)] == ["EMITTED", "PICKED", "COMPLETED"]


async def test_a_node_is_not_ready_while_nothing_is_committed(awaiting: Awaiting) -> None:
    one = node(awaiting)
    async with running(one):
        assert await one._prove() == (None, {})
        with awaiting.nobody_follows():
            async with asyncio.timeout(20):
                while (said := (await one._prove())[0]) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            assert "synchronous standby" in said
