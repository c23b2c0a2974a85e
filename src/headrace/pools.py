"""Pools of connections of our own, which have at hand what was given back a moment ago.

Psycopg's pools hand out what has rested longest, under a lock, with statistics and a log; next to a small
statement that takes long.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from headrace.sessions import AsyncSession, Session

AT_HAND = 10.0  # seconds until a pool sees its connections again and can replace or close some
# Seconds for which a pool tries to replace a connection, each time after twice as long; then it begins anew. Else, after a
# minute without PostgreSQL, it would not look for another minute whether it is back.
REPLACING = 4.0

_IDLE = TransactionStatus.IDLE
_OFF = PipelineStatus.OFF


def _is_of_others(record: logging.LogRecord) -> bool:
    """Psycopg's pools tell of every attempt to connect and of every connection that they lost. Of ours whoever needs them says
    so, once."""
    about = record.args[0] if isinstance(record.args, tuple) and record.args else None
    is_ours = isinstance(about, Session | AsyncSession) or str(about).startswith("headrace")
    return record.levelno >= logging.ERROR or not is_ours


logging.getLogger("psycopg.pool").addFilter(_is_of_others)


class Sessions(ConnectionPool[Session]):
    """A pool that has at hand what was given back last.

    What is at hand counts as handed out. The pool gets it back when somebody is waiting there for a
    connection, and every few seconds.
    """

    def __init__(self, dsn: str, **options: Any) -> None:
        self._at_hand: list[Session] = []
        self._wanted = 0  # by so many threads, who ask the pool because nothing was at hand
        self._counting = threading.Lock()
        self._looking = threading.Lock()
        self._settle_at = 0.0
        super().__init__(
            dsn,
            connection_class=Session,
            reconnect_failed=_try_again,
            reconnect_timeout=REPLACING,
            **options,
        )

    def getconn(self, timeout: float | None = None) -> Session:
        try:
            return self._at_hand.pop()
        except IndexError:
            return self._ask_pool(timeout)

    def _ask_pool(self, timeout: float | None) -> Session:
        with self._counting:
            self._wanted += 1
        try:
            # Again: who gave one back meanwhile has not seen that it is wanted. Who does so from now on
            # sees it.
            return self._at_hand.pop()
        except IndexError:
            return super().getconn(timeout)
        finally:
            with self._counting:
                self._wanted -= 1

    def putconn(self, conn: Session) -> None:
        # No method of the session is called: Ctrl-C could come there, and the pool would miss it for ever.
        if conn.pgconn.pipeline_status != _OFF:  # somebody was interrupted between two steps
            conn.pgconn.finish()
        if conn.pgconn.transaction_status != _IDLE:
            is_lost = conn.closed
            super().putconn(conn)  # which knows what to do with it
            if is_lost:
                self._look_at_others()
            return
        self._at_hand.append(conn)
        if self._wanted or self.closed or time.monotonic() >= self._settle_at:
            self._settle()

    def _look_at_others(self) -> None:
        """Where one connection is lost the others mostly are too: else each would fail somebody."""
        if self._looking.acquire(blocking=False):
            threading.Thread(target=self._look, name="headrace connections", daemon=True).start()

    def _look(self) -> None:
        try:
            self._settle()
            if not self.closed:
                self.check()
        finally:
            self._looking.release()

    def close(self, timeout: float = 5.0) -> None:
        super().close(timeout)
        self._settle()

    def _settle(self) -> None:
        self._settle_at = time.monotonic() + AT_HAND
        while self._at_hand:
            try:
                session = self._at_hand.pop()
            except IndexError:  # another thread was faster
                return
            super().putconn(session)


class AsyncSessions(AsyncConnectionPool[AsyncSession]):
    """The same for asyncio, where nobody comes in between."""

    def __init__(self, dsn: str, **options: Any) -> None:
        self._at_hand: list[AsyncSession] = []
        self._looking: asyncio.Task[None] | None = None
        self._wanted = 0
        self._settle_at = 0.0
        super().__init__(
            dsn,
            connection_class=AsyncSession,
            reconnect_failed=_try_again_soon,
            reconnect_timeout=REPLACING,
            **options,
        )

    async def getconn(self, timeout: float | None = None) -> AsyncSession:  # noqa: ASYNC109
        if self._at_hand:
            return self._at_hand.pop()
        self._wanted += 1
        try:
            return await super().getconn(timeout)
        finally:
            self._wanted -= 1

    async def putconn(self, conn: AsyncSession) -> None:
        if conn.pgconn.pipeline_status != _OFF:
            conn.pgconn.finish()
        if conn.pgconn.transaction_status != _IDLE:
            is_lost = conn.closed
            await super().putconn(conn)
            if is_lost and self._looking is None and not self.closed:
                self._looking = asyncio.create_task(self._look())
            return
        self._at_hand.append(conn)
        if self._wanted or self.closed or time.monotonic() >= self._settle_at:
            await self._settle()

    async def _look(self) -> None:
        try:
            await self._settle()
            await self.check()
        finally:
            self._looking = None

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109
        looking = self._looking
        if looking is not None:
            looking.cancel()
            await asyncio.wait({looking}, timeout=timeout)
        await super().close(timeout)
        await self._settle()

    async def _settle(self) -> None:
        self._settle_at = time.monotonic() + AT_HAND
        while self._at_hand:
            await super().putconn(self._at_hand.pop())


def _try_again(pool: ConnectionPool[Any]) -> None:
    pool.check()  # which has it grow: somebody may be waiting


async def _try_again_soon(pool: AsyncConnectionPool[Any]) -> None:
    await pool.check()
