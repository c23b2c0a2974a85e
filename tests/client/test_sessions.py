"""Connections of our own: who gets them, and that statements mean what they mean to psycopg."""

import asyncio
import contextlib
import math
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from select import select as select_ready
from typing import Any

import psycopg
import pytest
import uvloop
from psycopg import waiting
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.waiting import Ready, Wait

from headrace import InvalidInput
from headrace.driver import session_state
from headrace.driver.async_session import AsyncSession
from headrace.driver.run import run, run_async
from headrace.driver.session import Session
from headrace.driver.stepper import Stepper
from headrace.driver.wire import PREPARED
from headrace.engine.arguments import interval
from headrace.engine.statement import Statement, Together
from tests.client.clients import Client
from tests.database import Database
from tests.node.nodes import until

pytestmark = pytest.mark.one_database("how a client reaches one server")


def select(expression: str, *params: Any) -> Statement[Any]:
    return Statement(f"select {expression}", params, lambda rows: rows[0][0])


def test_threads_that_wait_get_what_others_give_back(db: Database) -> None:
    queue = db.queue(pool_size=1)
    with ThreadPoolExecutor(6) as threads:
        events = list(threads.map(lambda _: queue.publish("a"), range(600), timeout=60))
    assert len({event.id for event in events}) == 600


@pytest.mark.anyio
async def test_tasks_that_wait_get_what_others_give_back(db: Database) -> None:
    async with db.async_queue(pool_size=1) as queue:
        events = await asyncio.gather(*(queue.publish("a") for _ in range(200)))
    assert len({event.id for event in events}) == 200


def test_the_pool_sees_its_connections_again_from_time_to_time(client: Client) -> None:
    queue = client.queue()
    pool = getattr(queue, "_source")  # noqa: B009 - the same for both clients
    for _ in range(2):
        queue.publish("a")
    (kept,) = pool._at_hand
    queue.publish("a")
    assert pool._at_hand == [kept]
    pool._settle_at = 0
    queue.publish("a")
    assert pool._at_hand == []


def test_what_was_given_back_in_a_transaction_is_not_at_hand(db: Database) -> None:
    queue = db.queue(pool_size=1)
    pool: Any = queue._source
    queue.publish("a")
    connection = pool.getconn()
    connection.pgconn.exec_(b"begin")
    pool.putconn(connection)
    assert pool._at_hand == []
    event = queue.publish("a")
    assert len(db.placement()) == 2
    assert queue.event(event.id).status == "PENDING"


def test_what_was_given_back_in_a_pipeline_is_replaced(client: Client) -> None:
    queue = client.queue(pool_size=1)
    pool = getattr(queue, "_source")  # noqa: B009 - the same for both clients
    for _ in range(2):
        queue.publish("a")
    kept = pool._at_hand.pop()
    kept.pgconn.enter_pipeline_mode()
    client.call(pool.putconn, kept)
    assert kept.closed
    queue.publish("a")


def test_what_is_given_back_to_a_closed_pool_is_closed(db: Database) -> None:
    queue = db.queue()
    queue.publish("a")
    pool: Any = queue._source
    connection = pool.getconn()
    queue.close()
    assert not connection.closed
    pool.putconn(connection)
    assert connection.closed


@pytest.fixture
def session(db: Database) -> Any:
    with Session.connect(db.dsn, autocommit=True, prepare_threshold=0) as session:
        yield session


@pytest.mark.parametrize(
    "statement",
    [
        select("%s::text || '%%s' || %s", "a", "b%"),
        select("%s + 1", 5),
        select("%s + 1", 2**40),
        select("%s::text[]", ["a,b", 'c"d', None, "{}"]),
        select("pg_typeof(%s)::text", [1, 2]),
        select("%s::interval = '90 s' and %s", interval(90, "a lease"), True),
        select("coalesce(%s::text, 'none')", None),
        select("now() is not null"),
    ],
    ids=lambda statement: statement.sql,
)
def test_a_statement_means_what_it_means_to_psycopg(
    db: Database, session: Any, statement: Any
) -> None:
    for _ in range(2):
        assert run(session, statement, prepare=True) == run(db.connect(), statement, prepare=True)


def test_no_more_statements_are_prepared_than_psycopg_would(session: Any) -> None:
    for number in range(PREPARED + 5):
        assert run(session, select(f"{number}"), prepare=True) == number
    prepared = select("count(*) from pg_prepared_statements")
    assert run(session, prepared, prepare=True) == PREPARED


def test_an_error_leaves_a_session_usable(session: Any) -> None:
    for _ in range(2):
        with pytest.raises(psycopg.errors.DivisionByZero):
            run(session, select("1 / %s", 0), prepare=True)
        with pytest.raises(psycopg.errors.UndefinedTable):
            run(session, select("1 from nothing"), prepare=True)
    assert run(session, select("1"), prepare=True) == 1


def test_statements_are_prepared_anew_when_they_are_no_longer_there(client: Client) -> None:
    queue = client.queue(pool_size=1)
    queue.publish("a")
    with pytest.raises(InvalidInput):  # psycopg deallocates everything after a rollback
        queue.publish_many([("a", {})] * 1_500 + [("a*", {})])
    for _ in range(2):
        assert len(queue.poll()) == 1
        queue.publish("a")


def test_what_is_sent_together_is_one_transaction(session: Any) -> None:
    run(session, Statement("create temp table own (n int)", (), list), prepare=True)
    insert = [
        Statement("insert into own values (%s) returning n", (n,), lambda r: r) for n in range(9)
    ]
    assert run(session, Together(insert), prepare=True) == [[(n,)] for n in range(9)]
    for broken in (0, 3, 8):
        spoilt = [*insert[:broken], select("1 / %s", 0), *insert[broken:]]
        with pytest.raises(psycopg.errors.DivisionByZero):
            run(session, Together(spoilt), prepare=True)

        def made(until: int = broken) -> Iterator[Statement[Any]]:
            yield from insert[:until]
            raise InvalidInput("one that cannot be made")

        if broken:
            with pytest.raises(InvalidInput, match="cannot be made"):
                run(session, Together(made()), prepare=True)
    assert run(session, select("count(*) from own"), prepare=True) == 9
    assert session.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_what_is_sent_together_joins_the_transaction_there_is(session: Any) -> None:
    two = Together([select("%s::int", 1), select("pg_current_xact_id()::text")])
    session.command(b"begin")
    _, within = run(session, two, prepare=True)
    assert run(session, select("pg_current_xact_id()::text"), prepare=True) == within
    session.command(b"rollback")


def test_what_is_sent_together_is_prepared_anew_when_it_is_no_longer_there(session: Any) -> None:
    together = Together([select("%s::text", str(n)) for n in range(8)])
    for _ in range(2):
        assert run(session, together, prepare=True) == [str(n) for n in range(8)]
        session.command(b"deallocate all")


def test_what_is_no_longer_there_each_time_is_sent_together_without_it(session: Any) -> None:
    together = Together([Statement("deallocate all", (), len)] * 3)
    assert run(session, together, prepare=True) == [0, 0, 0]


def test_far_more_than_fits_into_buffers_is_sent_together(session: Any) -> None:
    # Both ways: were the replies not read meanwhile, both ends would wait for each other.
    together = Together(select("%s::text", f"{n}" * 1_000_000) for n in range(10))
    assert [len(text) for text in run(session, together, prepare=True)] == [1_000_000] * 10


class Interrupted:
    """Publishes into a table, and is interrupted when the server has answered all that it was sent, so that there is nothing
    to cancel."""

    def __init__(self, db: Database, after: int) -> None:
        db.sql("create table public.own (n int)")
        self.db = db
        self.after = after
        self.made = 0
        self.interrupt: Callable[[], object] = lambda: None

    def statements(self) -> Iterator[Statement[Any]]:
        insert = "insert into public.own values (%s) returning n"
        for self.made in range(1, 10_000):
            if self.made == self.after:
                self.interrupt()
            yield Statement(insert, (self.made,), list)

    def check(self) -> None:
        assert self.made < 100
        assert self.db.sql("select count(*) from public.own") == [(0,)]


def test_who_is_interrupted_sends_no_more_and_commits_nothing(
    db: Database, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    publishing = Interrupted(db, 20)
    wait = waiting.wait

    def wait_and_be_interrupted(exchange: PQGen[Any], socket: int, **options: Any) -> Any:
        monkeypatch.setattr(waiting, "wait", wait)
        ready = None
        while publishing.made < publishing.after:
            assert exchange.send(ready) is Wait.R  # type: ignore[arg-type]
            select_ready([socket], [], [], 60)
            ready = Ready.R
        raise KeyboardInterrupt

    run(session, select("1"), prepare=True)
    monkeypatch.setattr(waiting, "wait", wait_and_be_interrupted)
    monkeypatch.setattr(psycopg.Connection, "cancel_safe", lambda *_, **__: None)
    with pytest.raises(KeyboardInterrupt):
        run(session, Together(publishing.statements()), prepare=True)
    assert run(session, select("1"), prepare=True) == 1
    publishing.check()


def test_an_exchange_that_nobody_ends_is_given_up_in_silence(session: Any) -> None:
    run(session, select("1"), prepare=True)
    exchange = session._wire.exchange_all(
        (select("1") for _ in range(100)), begin=True, commit=True
    )
    assert next(exchange) is Wait.R
    exchange.close()
    session.close()


@pytest.mark.anyio
@pytest.mark.parametrize("after", [1, 20])  # of the first, while it is prepared
async def test_a_task_that_is_cancelled_sends_no_more_and_commits_nothing(
    db: Database, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    async def too_late(*_: Any, **__: Any) -> None:
        pass

    monkeypatch.setattr(psycopg.AsyncConnection, "cancel_safe", too_late)
    async with await AsyncSession.connect(db.dsn, autocommit=True, prepare_threshold=0) as session:
        publishing = Interrupted(db, after)
        together = run_async(session, Together(publishing.statements()), prepare=True)
        call = asyncio.create_task(together)
        publishing.interrupt = call.cancel
        with pytest.raises(asyncio.CancelledError):
            await call
        assert await run_async(session, select("1"), prepare=True) == 1
        publishing.check()


@pytest.mark.parametrize("sent", [1, 2, 9])
def test_who_loses_the_connection_while_statements_are_made_is_told_so(
    session: Any, sent: int
) -> None:
    def made() -> Iterator[Statement[Any]]:
        for number in range(sent):
            yield select("%s::int", number)
        with socket.socket(fileno=os.dup(session.pgconn.socket)) as wire:
            wire.shutdown(socket.SHUT_RDWR)
        yield select("%s::int", sent)

    with pytest.raises(psycopg.OperationalError, match="server closed the connection"):
        run(session, Together(made()), prepare=True)
    assert session.broken


def test_text_is_utf_8_whatever_the_dsn_says(client: Client, db: Database) -> None:
    db.dsn = make_conninfo(db.dsn, client_encoding="latin1")
    queue = client.queue()
    event = queue.publish("schön 🦆", {"🦆": "schön"})
    (claimed,) = queue.poll()
    assert (claimed.type, claimed.payload) == ("schön 🦆", {"🦆": "schön"})
    assert queue.event(event.id).type == "schön 🦆"


@pytest.mark.anyio
async def test_much_may_be_sent_and_much_come_back(db: Database) -> None:
    async with db.async_queue() as queue:
        payload = {"text": "x" * 900_000}
        await queue.publish_many([("a", payload)] * 9)
        claimed = await queue.poll(max_events=9)
        assert [one.payload for one in claimed] == [payload] * 9


@pytest.mark.anyio
async def test_a_connection_that_is_cut_while_it_is_waited_for_is_replaced(db: Database) -> None:
    async with db.async_queue(pool_size=1) as queue:
        await queue.publish("a")
        (claimed,) = await queue.poll(each=True)
        other = db.connect(autocommit=False)
        other.execute("select from headrace.held for update")
        waiting = asyncio.create_task(queue.complete(claimed))
        query = "select pid from pg_stat_activity where datname = current_database()"
        ((pid,),) = db.sql(f"{query} and application_name = 'headrace'")
        await asyncio.to_thread(db.wait_until_blocked, pid)
        db.sql("select pg_terminate_backend(%s)", [pid])
        with pytest.raises(psycopg.OperationalError):
            await waiting
        other.rollback()
        await queue.complete(claimed)


@pytest.mark.anyio
async def test_a_call_that_is_cancelled_again_and_again_leaves_a_usable_client(
    db: Database,
) -> None:
    async with db.async_queue(pool_size=1) as queue:
        for pause in range(20):
            call = asyncio.create_task(queue.publish_many([("a", {"text": "x" * 50_000})] * 20))
            for _ in range(pause):
                await asyncio.sleep(0)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
        event = await queue.publish("b")
        assert [one.id for one in await queue.poll(types=["b"])] == [event.id]


@pytest.fixture
def just_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections are used so soon again that nobody looks at them first."""
    monkeypatch.setattr(session_state, "RESTED", math.inf)


@pytest.mark.usefixtures("just_used")
def test_when_all_connections_are_lost_one_call_learns_of_it(db: Database) -> None:
    queue = db.queue(pool_size=4)
    together = threading.Barrier(4, timeout=60)

    def all_at_once(_: int) -> None:
        with queue._source.connection():  # type: ignore[union-attr]
            together.wait()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(all_at_once, range(4)))
    cut_all(db)
    with pytest.raises(psycopg.OperationalError):
        queue.publish("a")
    db.wait_for(lambda: not queue._source._looking.locked())  # type: ignore[union-attr]
    for _ in range(4):
        queue.publish("a")


@pytest.mark.anyio
@pytest.mark.usefixtures("just_used")
async def test_when_all_connections_are_lost_one_await_learns_of_it(db: Database) -> None:
    async with db.async_queue(pool_size=4) as queue:
        await asyncio.gather(*(queue.publish("a") for _ in range(40)))
        cut_all(db)
        with pytest.raises(psycopg.OperationalError):
            await queue.publish("a")
        await until(lambda: queue._source._looking is None)
        await asyncio.gather(*(queue.publish("a") for _ in range(40)))


def cut_all(db: Database) -> None:
    db.sql(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
        "where datname = current_database() and pid <> pg_backend_pid()"
    )


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_server_that_dies_after_a_last_word_is_not_waited_for(new_loop: Any) -> None:
    ours, its = socket.socketpair()
    with ours, asyncio.Runner(loop_factory=new_loop) as runner:
        ours.setblocking(False)
        ours.send(b"a question that it does not read")
        its.send(b"a last word")
        its.close()

        def exchange() -> PQGen[bytes]:
            heard = b""
            while True:
                yield Wait.R
                try:
                    heard += ours.recv(4)
                except ConnectionResetError:
                    return heard

        async def ask() -> bytes:
            return await asyncio.wait_for(Stepper(exchange(), ours.fileno()).run(), 60)

        assert runner.run(ask()) == b"a last word"


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_who_loses_the_connection_while_much_is_to_be_sent_is_told_so(
    db: Database, new_loop: Any
) -> None:
    """Libpq closes the socket, whose loop watches both ends of it then."""
    other = db.connect()
    other.execute("select pg_advisory_lock(1)")
    lock = select("pg_advisory_lock(1)::text")
    much = [select("%s::text", "x" * 1_000_000) for _ in range(5)]

    async def ask() -> None:
        async with await AsyncSession.connect(
            db.dsn, autocommit=True, prepare_threshold=0
        ) as session:
            asking = asyncio.create_task(run_async(session, Together([lock, *much]), prepare=True))
            await asyncio.to_thread(db.wait_until_blocked, session.info.backend_pid)
            with socket.socket(fileno=os.dup(session.pgconn.socket)) as wire:
                wire.shutdown(socket.SHUT_RDWR)
            with pytest.raises(psycopg.OperationalError, match="server closed the connection"):
                await asyncio.wait_for(asking, 60)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(ask())
