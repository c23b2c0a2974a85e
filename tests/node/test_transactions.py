"""Handlers that ask for their connection: what they write and the end of their event are committed together, or not at all."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from headrace import Claimed, Discard, Node, Retry
from tests.database import Database
from tests.node.nodes import node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

KINDS = pytest.mark.parametrize("kind", ["async", "plain"])
INSERT = "insert into effects values (%s)"


@pytest.fixture
def db(db: Database) -> Database:
    db.sql("create table effects (event bigint)")
    return db


def effects(db: Database) -> list[int]:
    return [event for (event,) in db.sql("select event from effects order by 1")]


def transactional(
    one: Node, kind: str, then: Callable[[Claimed, Any], Any] = lambda event, connection: None
) -> None:
    """Register a handler that writes a row and does something more with its connection."""
    if kind == "async":

        @one.on_event("a", max_retries=1)
        async def handle(event: Claimed, connection: Any) -> Any:
            await connection.execute(INSERT, [event.id])
            done = then(event, connection)
            return await done if asyncio.iscoroutine(done) else done

    else:

        @one.on_event("a", max_retries=1)
        def handle_plainly(event: Claimed, connection: Any) -> Any:
            connection.execute(INSERT, [event.id])
            return then(event, connection)


@KINDS
@requirement("PG-2", "PG-20")
async def test_effects_and_end_are_committed_together(db: Database, kind: str) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", {})] * 30)
    one = node(db)
    transactional(one, kind)
    async with running(one):
        await until(lambda: queue.stats().completed == 30)
        await settled(one)
    assert effects(db) == list(ids)
    assert {entry.action for entry in queue.log(ids[0])} == {"EMITTED", "PICKED", "COMPLETED"}


@KINDS
@pytest.mark.parametrize("how", ["raises", "retries", "discards"])
async def test_what_does_not_succeed_leaves_nothing(db: Database, kind: str, how: str) -> None:
    queue = db.queue()
    id = queue.publish("a").id

    def then(event: Claimed, connection: Any) -> Any:
        if how == "raises":
            raise ValueError("no")
        return Retry(after=60) if how == "retries" else Discard("never")

    one = node(db)
    transactional(one, kind, then)
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert effects(db) == []


@KINDS
@pytest.mark.parametrize(
    ("deed", "said"),
    [
        ("commit", "has ended the transaction it was given"),
        ("rollback", "has ended the transaction it was given"),
        ("commit; begin", "has ended the transaction it was given"),
        ("close", "has closed the connection it was given"),
    ],
)
async def test_a_handler_that_does_what_only_its_node_may_is_told_so_by_name(
    db: Database, kind: str, deed: str, said: str
) -> None:
    queue = db.queue()
    id = queue.publish("a").id

    def then(event: Claimed, connection: Any) -> Any:
        if deed == "commit; begin":
            return _nothing(connection.execute(deed))
        return _nothing(getattr(connection, deed)())

    one = node(db)
    transactional(one, kind, then)
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    error = queue.dead_letter(id).error or ""
    assert said in error
    assert "transactional.<locals>.handle" in error


def _nothing(result: Any) -> Any:
    """What a handler returns that did something with its connection: nothing."""
    if not asyncio.iscoroutine(result):
        return None

    async def awaited() -> None:
        await result

    return awaited()


@KINDS
async def test_what_is_emitted_joins_the_transaction(db: Database, kind: str) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db)
    emitted: list[int] = []

    if kind == "async":

        @one.on_event("a", max_retries=0)
        async def handle(event: Claimed, connection: Any) -> None:
            emitted.append((await one.emit("b")).id)
            raise ValueError("no")

    else:

        @one.on_event("a", max_retries=0)
        def handle_plainly(event: Claimed, connection: Any, context: Any) -> None:
            emitted.append(context.emit("b").id)
            raise ValueError("no")

    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert len(emitted) == 1
    assert queue.events(types=["b"]).total == 0


@KINDS
@requirement("G10")
async def test_what_the_commit_refuses_is_not_done(db: Database, kind: str) -> None:
    """A constraint that is looked at with the commit has the last word, on the end of the attempt too."""
    db.sql("alter table effects add unique (event) deferrable initially deferred")
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    db.sql("insert into effects values (%s)", [id])
    one = node(db)
    transactional(one, kind)
    async with running(one):
        await until(lambda: queue.event(id).status in ("FAILED", "COMPLETED"))
    assert queue.event(id).status == "FAILED"
    assert "UniqueViolation" in (queue.dead_letter(id).error or "")


@KINDS
@pytest.mark.parametrize("said", ["not held", "elsewhere"])
async def test_what_the_commit_says_is_not_taken_for_what_the_end_says(
    db: Database, kind: str, said: str
) -> None:
    db.sql(
        "create function refuse() returns trigger language plpgsql as $$"
        f"begin perform '{said}'::boolean; return null; end $$"
    )
    db.sql(
        "create constraint trigger refused after insert on effects initially deferred "
        "for each row execute function refuse()"
    )
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db)
    transactional(one, kind)
    async with running(one):
        await until(lambda: queue.event(id).status == "FAILED")
    assert "InvalidTextRepresentation" in (queue.dead_letter(id).error or "")


@KINDS
async def test_a_lease_that_was_lost_commits_nothing(db: Database, kind: str) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    reset: list[int] = []

    def then(event: Claimed, connection: Any) -> None:
        if not reset:
            reset.append(event.attempt)
            queue.reset(event.id)

    one = node(db)
    transactional(one, kind, then)
    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED")
        await settled(one)
    assert reset == [1]
    assert effects(db) == [id]
    assert queue.event(id).attempts == 2


@requirement("G9")
@KINDS
async def test_a_connection_that_is_cut_is_not_held_against_the_event(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    cut: list[int] = []

    def then(event: Claimed, connection: Any) -> Any:
        if not cut:
            cut.append(event.attempt)
            db.sql("select pg_terminate_backend(%s, 5000)", [connection.info.backend_pid])

    one = node(db)
    transactional(one, kind, then)
    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert cut == [1]
    assert effects(db) == [id]
    event = queue.event(id)
    assert (event.attempts, event.retry_count, event.crashes) == (2, 0, 0)


@KINDS
async def test_a_batch_is_one_transaction(db: Database, kind: str) -> None:
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(20)])
    one = node(db)

    if kind == "async":

        @one.on_batch("a", size=10)
        async def handle(events: list[Claimed], connection: Any) -> None:
            for event in events:
                await connection.execute(INSERT, [event.id])

    else:

        @one.on_batch("a", size=10)
        def handle_plainly(events: list[Claimed], connection: Any) -> None:
            connection.cursor().executemany(INSERT, [[event.id] for event in events])

    async with running(one):
        await until(lambda: queue.stats().completed == 20)
    assert effects(db) == list(ids)


@KINDS
async def test_what_one_event_rolled_back_does_not_harm_the_next_on_its_connection(
    db: Database, kind: str
) -> None:
    """Psycopg throws away what is prepared when a transaction, or a part of one, is rolled back."""
    queue = db.queue()
    queue.publish_many([("a", n) for n in range(30)])
    one = node(db, connections=1)

    if kind == "async":

        @one.on_event("a", max_retries=0)
        async def handle(event: Claimed, connection: Any) -> None:
            await connection.execute(INSERT, [event.id], prepare=True)
            if event.payload % 10 == 5:
                raise ValueError("no")
            with contextlib.suppress(psycopg.Error):
                async with connection.transaction():
                    await connection.execute("select 1 / 0")

    else:

        @one.on_event("a", max_retries=0)
        def handle_plainly(event: Claimed, connection: Any) -> None:
            connection.execute(INSERT, [event.id], prepare=True)
            if event.payload % 10 == 5:
                raise ValueError("no")
            with contextlib.suppress(psycopg.Error), connection.transaction():
                connection.execute("select 1 / 0")

    async with running(one):
        await until(lambda: queue.stats().attempts == 30)
        await settled(one)
    assert queue.stats().completed == len(effects(db)) == 27


@pytest.mark.parametrize("how", ["emits", "emits and asks", "pipeline"])
async def test_a_handler_may_use_its_connection_in_several_tasks_and_in_pipelines(
    db: Database, how: str
) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db)

    @one.on_event("a", max_retries=0, timeout=30)
    async def handle(event: Claimed, connection: Any) -> None:
        if how == "emits":
            await asyncio.gather(*(one.emit("b") for _ in range(5)))
        elif how == "emits and asks":
            asking = (connection.execute(INSERT, [event.id]) for _ in range(4))
            await asyncio.gather(*asking, *(one.emit("b") for _ in range(5)))
        else:
            async with connection.pipeline():
                for _ in range(5):
                    await connection.execute(INSERT, [event.id])
                    await one.emit("b")

    async with running(one):
        await until(lambda: queue.event(id).status in ("COMPLETED", "FAILED"))
    assert queue.event(id).status == "COMPLETED"
    assert queue.events(types=["b"]).total == 5


@KINDS
async def test_many_events_may_be_made_of_what_is_looked_up_in_the_transaction(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db)
    seen: list[int] = []

    if kind == "async":

        @one.on_event("a", max_retries=0, timeout=30)
        async def handle(event: Claimed, connection: Any) -> None:
            async with connection.pipeline():
                await one.queue.publish_many([("b", {})] * 500, connection=connection)
            await one.queue.publish_many([("b", {})] * 500, connection=connection)

    else:

        @one.on_event("a", max_retries=0)
        def handle_plainly(event: Claimed, connection: Any) -> None:
            def looked_up() -> Iterator[tuple[str, Any]]:
                for number in range(1_000):
                    if number % 100 == 0:
                        seen.append(connection.execute("select %s::int", [number]).fetchone()[0])
                    yield "b", {}

            queue.publish_many(looked_up(), connection=connection)

    async with running(one):
        await until(lambda: queue.event(id).status in ("COMPLETED", "FAILED"))
    assert queue.event(id).status == "COMPLETED"
    assert queue.events(types=["b"]).total == 1_000
    assert seen == ([] if kind == "async" else list(range(0, 1_000, 100)))


@KINDS
async def test_a_handler_that_deallocates_what_is_prepared_harms_no_other_on_its_connection(
    db: Database, kind: str
) -> None:
    queue = db.queue()
    one = node(db, connections=1, concurrency=1)

    def then(event: Claimed, connection: Any) -> Any:
        if event.payload == "deallocates":
            return _nothing(connection.execute("deallocate all"))
        return None

    transactional(one, kind, then)
    async with running(one):
        for payload in ("prepares", "deallocates", "is next"):
            id = queue.publish("a", payload, max_retries=0).id
            await until(lambda id=id: queue.event(id).status in ("COMPLETED", "FAILED"))  # type: ignore[misc]
    assert queue.event(id).status == "COMPLETED"
