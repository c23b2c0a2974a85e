"""A node while PostgreSQL does not answer, or answers what nobody expects."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from headrace import Claimed, Released
from headrace.driver.patience import Outage
from headrace.model import Completed, Result, Verdict
from headrace.node.finish.finisher import MOST_UNTOLD, Finisher
from headrace.node.health.tally import Tally
from headrace.node.run.transaction import COMMIT, Pools
from headrace.node.runner import NodeRunner
from tests.database import Database
from tests.node.claims import claimed
from tests.node.nodes import node, running, settled, until
from tests.requirements import requirement

pytestmark = pytest.mark.anyio

KINDS = pytest.mark.parametrize("kind", ["async", "plain"])


def cut_all(db: Database) -> None:
    """Every connection but the one that does it."""
    db.sql(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()"
    )


@requirement("PG-25")
async def test_what_is_back_at_once_is_no_outage(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    one = node(db, idle=60)
    seen: list[int] = []

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        seen.append(event.payload)

    async with running(one):
        queue.publish("a", 1)
        await until(lambda: seen == [1])
        cut_all(db)
        db.queue().publish("a", 2)
        await until(lambda: seen == [1, 2])
    assert "trying again" not in caplog.text
    assert "wake-ups" not in caplog.text
    assert "leases cannot" not in caplog.text


@requirement("PG-25", "G4")
@KINDS
async def test_what_was_done_while_the_connections_were_cut_is_not_forgotten(
    db: Database, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    queue = db.queue()
    queue.publish_many([("a", n) for n in range(20)])
    one = node(db, concurrency=20)
    starts: list[int] = []
    go_on = asyncio.Event()

    if kind == "async":

        @one.on_event("a")
        async def handle(event: Claimed) -> None:
            starts.append(event.id)
            await go_on.wait()

    else:

        @one.on_event("a")
        def handle_plainly(event: Claimed) -> None:
            starts.append(event.id)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)

    loop = asyncio.get_running_loop()
    async with running(one):
        await until(lambda: len(starts) == 20)
        cut_all(db)
        go_on.set()
        await settled(one)
        await until(lambda: one.vitals().trouble is None)
    assert db.queue().stats().completed == 20
    assert len(starts) == len(set(starts)) == 20
    assert caplog.text.count("trying again, because") <= 1


@requirement("G15")
async def test_a_node_claims_no_more_while_it_cannot_tell_what_has_ended(db: Database) -> None:
    queue = db.queue()
    many = 10 * MOST_UNTOLD
    one = node(db)
    starts = 0

    @one.on_event("a")
    async def handle(event: Claimed) -> None:
        nonlocal starts
        starts += 1

    for _ in range(0, many, 10_000):
        queue.publish_many([("a", None)] * 10_000)
    with db.connect(autocommit=False) as locker:
        locker.execute("lock table headrace.outcomes in share mode")
        async with running(one):
            before, alike = 0, 0
            while alike < 20:  # until it has come to rest
                await until(lambda: starts)
                await asyncio.to_thread(db.sql, "select count(*) from headrace.leases")
                alike = alike + 1 if starts == before else 0
                before = starts
            assert starts < many / 2
            locker.rollback()
            await until(lambda: starts == many)
            await settled(one)
    assert queue.stats().completed == many


@KINDS
async def test_no_connection_for_a_transaction_is_not_held_against_the_event(
    db: Database, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db)
    refused: list[int] = []
    starts: list[int] = []

    class Full:
        """A pool that has none to give, for the first two who ask."""

        def __init__(self, pool: Any) -> None:
            self._pool = pool

        def getconn(self) -> Any:
            if len(refused) < 2:
                refused.append(1)
                raise psycopg.OperationalError("couldn't get a connection")
            return self._pool.getconn()

        def putconn(self, connection: Any) -> Any:
            return self._pool.putconn(connection)

    for_async, for_plain = Pools.for_async, Pools.for_plain

    async def full(self: Pools) -> Any:
        return Full(await for_async(self))

    monkeypatch.setattr(Pools, "for_async", full)
    monkeypatch.setattr(Pools, "for_plain", lambda self: Full(for_plain(self)))

    if kind == "async":

        @one.on_event("a")
        async def handle(event: Claimed, connection: Any) -> None:
            starts.append(event.attempt)

    else:

        @one.on_event("a")
        def handle_plainly(event: Claimed, connection: Any) -> None:
            starts.append(event.attempt)

    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert starts == [3]
    assert queue.event(id).retry_count == 0


def losing_the_reply(connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it sends is executed, and with the reply to COMMIT it is lost."""
    ask_all, command = connection.ask_all, connection.command

    def lose() -> None:
        connection.pgconn.finish()
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    def plainly(words: bytes) -> None:
        command(words)
        if words == COMMIT:
            lose()

    async def awaited(words: bytes) -> None:
        await command(words)
        if words == COMMIT:
            lose()

    def plainly_with_the_end(*arguments: Any, **options: Any) -> None:
        ask_all(*arguments, **options)
        lose()

    async def awaited_with_the_end(*arguments: Any, **options: Any) -> None:
        await ask_all(*arguments, **options)
        lose()

    is_async = isinstance(connection, psycopg.AsyncConnection)
    monkeypatch.setattr(connection, "command", awaited if is_async else plainly)
    with_the_end = awaited_with_the_end if is_async else plainly_with_the_end
    monkeypatch.setattr(connection, "ask_all", with_the_end)


@requirement("G10")
@KINDS
async def test_a_commit_of_which_nothing_is_heard_while_nobody_can_be_asked_is_sorted_out_later(
    db: Database, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transaction is committed and its reply lost, and so are the first answers to what became of it."""
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    id = queue.publish("a").id
    one = node(db)
    asked: list[int] = []

    answers = NodeRunner.resolve

    async def resolve(self: NodeRunner, claimed: Claimed) -> str | None:
        asked.append(claimed.id)
        if len(asked) < 3:
            raise psycopg.OperationalError("PostgreSQL is away")
        return await answers(self, claimed)

    monkeypatch.setattr(NodeRunner, "resolve", resolve)

    if kind == "async":

        @one.on_event("a")
        async def handle(event: Claimed, connection: Any) -> None:
            await connection.execute("insert into effects values (%s)", [event.id])
            losing_the_reply(connection, monkeypatch)

    else:

        @one.on_event("a")
        def handle_plainly(event: Claimed, connection: Any) -> None:
            connection.execute("insert into effects values (%s)", [event.id])
            losing_the_reply(connection, monkeypatch)

    async with running(one):
        await until(lambda: len(asked) == 3)
        await settled(one)
    assert db.sql("select event from effects") == [(id,)]
    assert queue.event(id).status == "COMPLETED"


@KINDS
async def test_of_a_batch_the_lost_are_lost_and_the_others_come_back_at_once(
    db: Database, kind: str
) -> None:
    db.sql("create table effects (event bigint)")
    queue = db.queue()
    ids = queue.publish_many([("a", n) for n in range(3)])
    one = node(db)
    reset: list[int] = []

    def steal() -> None:
        if not reset:
            reset.append(ids[1])
            queue.reset(ids[1])

    insert = "insert into effects values (%s)"
    if kind == "async":

        @one.on_batch("a", size=3)
        async def handle(events: list[Claimed], connection: Any) -> None:
            for event in events:
                await connection.execute(insert, [event.id])
            steal()

    else:

        @one.on_batch("a", size=3)
        def handle_plainly(events: list[Claimed], connection: Any) -> None:
            connection.cursor().executemany(insert, [[event.id] for event in events])
            steal()

    async with running(one):
        await until(lambda: queue.stats().completed == 3)
        await settled(one)
    assert sorted(event for (event,) in db.sql("select event from effects")) == list(ids)
    assert {queue.event(id).attempts for id in ids} == {2}, "and no lease had to run out"


@requirement("EQ-13", "G10")
async def test_of_several_handlers_one_that_has_committed_is_not_run_again_though_its_reply_is_lost(
    db: Database,
) -> None:
    db.sql("create table effects (who text)")
    queue = db.queue()
    id = queue.publish("a", max_retries=0).id
    one = node(db, dispatch="collect")
    cut: list[int] = []
    runs: list[str] = []

    @one.on_event("a")
    async def first(event: Claimed) -> None:
        runs.append("first")

    @one.on_event("a")
    async def writes(event: Claimed, connection: Any) -> None:
        runs.append("writes")
        await connection.execute("insert into effects values ('writes')")
        if not cut:
            cut.append(connection.info.backend_pid)
            db.sql("select pg_terminate_backend(%s, 5000)", cut)

    async with running(one):
        await until(lambda: queue.event(id).status == "COMPLETED")
    assert runs == ["first", "writes", "writes"], "what is not charged goes on where it was"
    assert db.sql("select who from effects") == [("writes",)]


class Told(NodeRunner):
    """An engine that has a database in its head only."""

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)
        self.finished: list[list[int]] = []

    async def complete_lease(self, lease: int, size: int, ms: int | None) -> bool:
        return False

    async def finish(self, results: Sequence[Result]) -> list[Verdict]:
        if self.troubles:
            raise self.troubles.pop(0)
        self.finished.append([result.claimed.id for result in results])
        return [Verdict("counted", "COMPLETED")] * len(results)


async def test_an_end_that_is_refused_does_not_keep_others_from_being_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Refused(Exception):
        pass

    engine = Told(
        psycopg.errors.StatementTooComplex(), psycopg.errors.StatementTooComplex(), Refused()
    )
    finisher = Finisher(engine, Outage("node"), Tally(), lambda lease: None, lambda: None)
    claims = [claimed(id=id) for id in (1, 2, 3)]
    finisher.opened(claims)
    task = asyncio.create_task(finisher.run())
    with caplog.at_level(logging.ERROR, "headrace"):
        finisher.end_all(Completed(one) for one in claims)
        await finisher.flush()
    assert engine.finished == [[3]]
    assert not finisher.leases
    assert caplog.text.count("PostgreSQL refused its end") == 2
    task.cancel()


async def test_a_lost_connection_is_no_refusal() -> None:
    engine = Told(psycopg.OperationalError("gone"), psycopg.errors.AdminShutdown())
    finisher = Finisher(engine, Outage("node"), Tally(), lambda lease: None, lambda: None)
    finisher.opened([claimed(id=1)])
    task = asyncio.create_task(finisher.run())
    finisher.end(Released(claimed(id=1)))
    await until(lambda: engine.finished == [[1]])
    task.cancel()
