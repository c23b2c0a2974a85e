"""A handler of any kind may say: not now, but later."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from headrace import AsyncContext, Claimed, Context, EventQueue, InvalidInput, Node, Snooze
from tests.database import Database
from tests.node.nodes import OUTLASTS, node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

Register = Callable[[Node, list[int]], None]


def quick(one: Node, attempts: list[int]) -> None:
    @one.on_event("a")
    async def handle(event: Claimed) -> Any:
        return later(event, attempts)


def plain(one: Node, attempts: list[int]) -> None:
    @one.on_event("a")
    def handle(event: Claimed) -> Any:
        return later(event, attempts)


def batch(one: Node, attempts: list[int]) -> None:
    @one.on_batch("a", size=10)
    async def handle(events: list[Claimed]) -> Any:
        return [later(event, attempts) for event in events]


def transactional(one: Node, attempts: list[int]) -> None:
    @one.on_event("a")
    async def handle(event: Claimed, connection: Any) -> Any:
        return later(event, attempts)


def by_a_rule(one: Node, attempts: list[int]) -> None:
    @one.on_event("a", rules={ConnectionError: Snooze(60)})
    async def handle(event: Claimed) -> None:
        if later(event, attempts):
            raise ConnectionError("not now")


def later(event: Claimed, attempts: list[int]) -> Snooze | None:
    attempts.append(event.attempt)
    return Snooze(60) if event.attempt == 1 else None


@pytest.mark.parametrize("dispatch", ["atomic", "collect"])
@pytest.mark.parametrize("register", [quick, plain, batch, transactional, by_a_rule])
async def test_any_kind_of_handler_snoozes(db: Database, register: Register, dispatch: Any) -> None:
    queue = db.queue()
    id = queue.publish("a", max_retries=1).id
    one = node(db, lease=OUTLASTS, dispatch=dispatch)
    attempts: list[int] = []
    register(one, attempts)
    async with running(one):
        await until(lambda: queue.event(id).snoozes == 1)
        assert queue.event(id).status == "PENDING"
        db.advance(seconds=61)
        await until(lambda: queue.event(id).status == "COMPLETED")
        await settled(one)
    assert attempts == [1, 2]
    assert [entry.action for entry in queue.log(id)] == [
        *("EMITTED", "PICKED", "SNOOZED", "PICKED", "COMPLETED"),
    ]


def is_snoozed(queue: EventQueue, id: int, times: int) -> bool:
    return queue.event(id).snoozes == times


@requirement("G10")
@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("others", [0, 1])
async def test_what_a_snoozing_handler_writes_and_saves_is_committed_with_its_snooze(
    db: Database, kind: str, others: int
) -> None:
    db.sql("create table effects (page int)")
    queue = db.queue()
    id = queue.publish("a", max_retries=1).id
    one = node(db, lease=OUTLASTS, dispatch="collect" if others else "atomic")
    insert = "insert into effects values (%s)"

    if kind == "async":

        @one.on_event("a")
        async def handle(event: Claimed, connection: Any, context: AsyncContext) -> Any:
            page = (context.progress or 0) + 1
            await connection.execute(insert, [page])
            await context.save(page)
            return Snooze(60) if page < 3 else None

    else:

        @one.on_event("a")
        def handle_plainly(event: Claimed, connection: Any, context: Context) -> Any:
            page = (context.progress or 0) + 1
            connection.execute(insert, [page])
            context.save(page)
            return Snooze(60) if page < 3 else None

    for _ in range(others):

        @one.on_event("a")
        async def another(event: Claimed) -> None:
            assert event.attempt == 1

    async with running(one):
        for snoozes in (1, 2):
            await until(partial(is_snoozed, queue, id, snoozes))
            assert db.sql("select count(*) from effects") == [(snoozes,)]
            db.advance(seconds=61)
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert db.sql("select page from effects order by 1") == [(1,), (2,), (3,)]


async def test_handlers_that_share_a_transaction_commit_nothing_when_one_of_them_snoozes(
    db: Database,
) -> None:
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db, lease=OUTLASTS)

    @one.on_event("a")
    async def writes(event: Claimed, connection: Any) -> None:
        await connection.execute("insert into effects values (%s)", [event.id])

    @one.on_event("a")
    async def snoozes(event: Claimed) -> Any:
        return Snooze(60) if event.attempt == 1 else None

    async with running(one):
        await until(partial(is_snoozed, queue, id, 1))
        assert db.sql("select * from effects") == []
        db.advance(seconds=61)
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert db.sql("select * from effects") == [(id,)]


async def test_a_snooze_too_many_leaves_nothing_of_its_transaction(db: Database) -> None:
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    queue.change_queue("main", max_snoozes=0)
    id = queue.publish("a", max_retries=1).id
    one = node(db)

    @one.on_event("a")
    async def handle(event: Claimed, connection: Any) -> Any:
        await connection.execute("insert into effects values (%s)", [event.id])
        return Snooze(1)

    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert db.sql("select * from effects") == []
    assert "max_snoozes" in queue.dead_letter(id).reason


async def test_a_lost_lease_undoes_what_a_snoozing_handler_wrote(db: Database) -> None:
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db)

    @one.on_event("a")
    async def handle(event: Claimed, connection: Any) -> Any:
        await connection.execute("insert into effects values (%s)", [event.id])
        queue.cancel(id)
        return Snooze(1)

    async with running(one):
        await until(lambda: queue.event(id).status == "CANCELLED")
        await settled(one)
    assert db.sql("select * from effects") == []


async def test_where_one_of_several_snoozes_the_others_are_not_run_again(db: Database) -> None:
    queue = db.queue()
    id = queue.publish("a", max_retries=1).id
    one = node(db, lease=OUTLASTS, dispatch="collect")
    runs: list[str] = []

    @one.on_event("a")
    async def good(event: Claimed) -> None:
        runs.append("good")

    @one.on_event("a")
    async def snoozes(event: Claimed) -> Any:
        runs.append("snoozes")
        return Snooze(60) if event.attempt == 1 else None

    async with running(one):
        await until(lambda: queue.event(id).snoozes == 1)
        db.advance(seconds=61)
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert runs == ["good", "snoozes", "snoozes"]


@pytest.mark.parametrize("delay", [-1, 315_360_001, "30", None, float("nan")])
def test_a_snooze_of_no_time_is_refused_where_it_is_made(delay: Any) -> None:
    with pytest.raises(InvalidInput):
        Snooze(delay)
