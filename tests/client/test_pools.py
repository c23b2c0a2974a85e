"""Pools find PostgreSQL again soon after it was away, however long that was."""

import asyncio
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

import headrace
from headrace.driver.async_pool import AsyncSessions
from headrace.driver.pool import LONGEST_PAUSE, REPLACING, Attempt, Sessions
from tests.database import Database
from tests.faults.proxy import Fault, Proxy
from tests.node.nodes import until
from tests.requirements import requirement

pytestmark = pytest.mark.one_database("how a client reaches one server")

PATIENCE = 60.0


@pytest.fixture
def proxy(db: Database) -> Iterator[Proxy]:
    with Proxy(db.dsn) as proxy:
        yield proxy


def vanish(proxy: Proxy) -> None:
    proxy.arm(Fault("vanished", 1))


@requirement("PG-25")
def test_who_waits_for_a_connection_gets_one_when_postgresql_is_back(
    proxy: Proxy, db: Database
) -> None:
    with (
        Sessions(proxy.dsn, min_size=1, max_size=2, kwargs={"autocommit": True}) as pool,
        ThreadPoolExecutor() as threads,
    ):
        assert pool.reconnect_timeout == REPLACING
        pool.reconnect_timeout = 0.1
        tired: list[int] = []
        pool._reconnect_failed = _noting(pool._reconnect_failed, tired)
        pool.wait()
        vanish(proxy)
        with pytest.raises(Exception, match="closed"), pool.connection() as connection:
            connection.execute("select 1")
        waiting = threads.submit(pool.getconn, PATIENCE)
        db.wait_for(lambda: len(tired) > 2)
        assert not waiting.done()
        proxy.reappear()
        session = waiting.result(PATIENCE)
        assert session.execute("select 1").fetchone() == (1,)
        pool.putconn(session)


def _noting(function: object, calls: list[int]) -> object:
    def noted(pool: object) -> object:
        calls.append(1)
        return function(pool)  # type: ignore[operator]

    return noted


@pytest.mark.anyio
@requirement("PG-25")
async def test_who_awaits_a_connection_gets_one_when_postgresql_is_back(
    proxy: Proxy, db: Database
) -> None:
    pool = AsyncSessions(proxy.dsn, min_size=1, max_size=2, kwargs={"autocommit": True}, open=False)
    async with pool:
        assert pool.reconnect_timeout == REPLACING
        pool.reconnect_timeout = 0.1
        tired: list[int] = []
        pool._reconnect_failed = _noting(pool._reconnect_failed, tired)
        await pool.wait()
        vanish(proxy)
        with pytest.raises(Exception, match="closed"):
            async with pool.connection() as connection:
                await connection.execute("select 1")
        waiting = asyncio.create_task(pool.getconn(PATIENCE))
        await until(lambda: len(tired) > 2)
        assert not waiting.done()
        proxy.reappear()
        session = await waiting
        assert await (await session.execute("select 1")).fetchone() == (1,)
        await pool.putconn(session)


def test_a_pool_never_waits_long_between_two_attempts_to_connect() -> None:
    attempt, now, pauses = Attempt(timeout=REPLACING), 100.0, []
    while not attempt.time_to_give_up(now):
        attempt.update_delay(now)
        pauses.append(attempt.delay)
        now += attempt.delay
    assert pauses[0] < 0.07
    assert max(pauses) <= LONGEST_PAUSE
    assert sum(pauses) == pytest.approx(REPLACING)


@pytest.mark.anyio
@requirement("PG-25")
async def test_who_wants_to_is_told_of_each_attempt_and_of_success(proxy: Proxy) -> None:
    told: list[bool] = []
    pool = AsyncSessions(proxy.dsn, min_size=1, max_size=1, kwargs={"autocommit": True}, open=False)
    pool.connected = lambda error: told.append(error is None)
    async with pool:
        await pool.wait()
        vanish(proxy)
        with pytest.raises(Exception, match="closed"):
            async with pool.connection() as connection:
                await connection.execute("select 1")
        await until(lambda: told.count(False) > 2)
        proxy.reappear()
        await until(lambda: told[-1])
    assert told == [True, *[False] * (len(told) - 2), True]


def test_what_pools_of_ours_lose_is_not_told_each_time(
    proxy: Proxy, db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    with headrace.connect(proxy.dsn) as queue:
        vanish(proxy)
        with pytest.raises(psycopg.OperationalError):
            queue.publish("a")
        proxy.reappear()
        queue.publish("a")
    assert caplog.records == []
    logging.getLogger("psycopg.pool").warning("error connecting in %r: %s", "pool-1", "gone")
    assert len(caplog.records) == 1, "of others' it is"


def test_a_loop_ends_though_a_client_was_not_closed_while_it_connected() -> None:
    async def connect_and_leave(port: int) -> None:
        pool = AsyncSessions(f"host=127.0.0.1 port={port}", min_size=1, open=False)
        await pool.open()
        connection, _ = await asyncio.to_thread(listener.accept)
        accepted.enter_context(connection)  # and nobody answers there

    with ExitStack() as accepted, socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        ending = threading.Thread(target=asyncio.run, args=[connect_and_leave(port)], daemon=True)
        ending.start()
        ending.join(PATIENCE)
        assert not ending.is_alive()
