"""A session that hears notifications, and whether they reach it through a pooler."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

import psycopg

from headrace.driver.async_session import AsyncSession
from headrace.driver.run import run_async
from headrace.driver.session_state import is_cut
from headrace.engine.statement import Statement

T = TypeVar("T")

ANSWER = 5.0  # seconds without a reply until the connection counts as dead
PROBE = 1.0  # seconds for a notification to come through a pooler or proxy


class PooledError(Exception):
    """Notifications do not reach us."""


class Listener:
    """A session that also hears what it is notified of while nothing is asked of it."""

    def __init__(self, session: AsyncSession, heard: Callable[[str, str], None]) -> None:
        self._session = session
        self._heard = heard
        self._lost: psycopg.Error | None = None
        session.add_notify_handler(lambda notify: heard(notify.channel, notify.payload))

    async def ask(self, statement: Statement[T]) -> T:
        asking = asyncio.create_task(run_async(self._session, statement, prepare=True))
        try:
            await asyncio.wait({asking}, timeout=ANSWER)
        finally:
            if not asking.done():
                self._hang_up()
                asking.cancel()
                await asyncio.wait({asking})
        if asking.cancelled():
            raise TimeoutError("PostgreSQL does not answer")
        return asking.result()

    def _hang_up(self) -> None:
        """Close at once: psycopg would wait for a server that has vanished, first of all to
        cancel the statement."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._session.pgconn.socket)
        loop.remove_writer(self._session.pgconn.socket)
        self._session.pgconn.finish()

    async def listen(self, until: asyncio.Event, timeout: float | None) -> None:  # noqa: ASYNC109
        """Until this is set, or the time is up, or the connection is lost, which is raised."""
        loop, socket = asyncio.get_running_loop(), self._session.pgconn.socket
        loop.add_reader(socket, self._read, socket, until)
        try:
            self._read(socket, until)
            with suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), timeout)
        finally:
            if self._lost is None:
                loop.remove_reader(socket)
        if self._lost is not None:
            raise self._lost

    def _read(self, socket: int, until: asyncio.Event) -> None:
        try:
            self._session.pgconn.consume_input()
            while is_cut(socket):  # to the end, which is an error
                self._session.pgconn.consume_input()
            while notify := self._session.pgconn.notifies():
                self._heard(notify.relname.decode(), notify.extra.decode(errors="replace"))
        except psycopg.Error as error:
            # At once: the socket is closed, and the next one that is opened gets its number.
            asyncio.get_running_loop().remove_reader(socket)
            self._lost = error
            until.set()


@asynccontextmanager
async def listening(dsn: str, heard: Callable[[str, str], None]) -> AsyncIterator[Listener]:
    async with await AsyncSession.connect(dsn, autocommit=True, prepare_threshold=0) as session:
        if await _is_pooled(session) and not await _is_reached(session, dsn):
            raise PooledError
        # To wait is what this session is for.
        await session.execute("set idle_session_timeout = 0", prepare=False)
        yield Listener(session, heard)


async def _is_pooled(session: AsyncSession) -> bool:
    """Whether another process answers than the one that we have connected to."""
    asked = await session.execute("select pg_catalog.pg_backend_pid()", prepare=False)
    return await asked.fetchone() != (session.info.backend_pid,)


async def _is_reached(session: AsyncSession, dsn: str) -> bool:
    """Whether the notification of another session arrives while this session rests. It does not
    if a pooler has lent the session to another client then."""
    channel, reached = f"headrace_probe_{secrets.token_hex(8)}", asyncio.Event()
    listener = Listener(session, lambda heard, _: reached.set() if heard == channel else None)
    await session.execute(f"listen {channel}", prepare=False)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        await other.execute("select pg_catalog.pg_notify(%s, '')", [channel], prepare=False)
        await listener.listen(reached, PROBE)
    await session.execute(f"unlisten {channel}", prepare=False)
    return reached.is_set()
