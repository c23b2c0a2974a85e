"""Connections of our own, each used by one call at a time and always in autocommit.

A caller's connection is used as psycopg's users use it, through cursors and transactions. Here both can
be left out: statements go to libpq as they are, and a pool need not be asked for the connection that was
given back a moment ago. It halves what a small call takes.
"""

from __future__ import annotations

import re
import threading
import time
from itertools import count
from typing import Any

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.generators import execute
from psycopg.pq import ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from headrace.statements import Row, Statement

PREPARED = 100  # statements a session, as psycopg has it
AT_HAND = (
    10.0  # seconds until a pool sees its connections again, to replace old ones and close idle ones
)

_PLACEHOLDER = re.compile(r"%([%s])")
_IDLE = TransactionStatus.IDLE
_AUTO, _BINARY = PyFormat.AUTO, Format.BINARY


class _Wire:
    """Sends statements and reads replies, as psycopg's cursors would, with what they make anew each time
    kept: how Python's values are written, how PostgreSQL's types are read, what is prepared."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn
        # Without the connection it takes the encoding to be UTF-8, and in sessions of ours it is.
        self._adapter = Transformer()
        self._prepared: dict[tuple[str, tuple[int, ...]], bytes] = {}
        self._numbers = count()

    def exchange(self, statement: Statement[Any], prepare: bool) -> PQGen[list[Row]]:
        """A generator for psycopg to wait on, plainly or awaiting."""
        params = self._adapter.dump_sequence(statement.params, [_AUTO] * len(statement.params))
        types, formats = self._adapter.types or (), self._adapter.formats
        name = self._prepared.get((statement.sql, types))
        if name is None and prepare and len(self._prepared) < PREPARED:
            name = yield from self._prepare(statement.sql, types)
        if name is None:
            query = _numbered(statement.sql)
            self._pgconn.send_query_params(query, params, types, formats, _BINARY)
        else:
            self._pgconn.send_query_prepared(name, params, formats, _BINARY)
        try:
            result = _last((yield from execute(self._pgconn)))
        except errors.InvalidSqlStatementName:  # psycopg deallocates everything after a rollback
            if name is None:
                raise
            self._prepared.clear()
            return (yield from self.exchange(statement, prepare=False))
        return self._rows(result)

    def _prepare(self, sql: str, types: tuple[int, ...]) -> PQGen[bytes]:
        name = b"headrace_%d" % next(self._numbers)
        self._pgconn.send_prepare(name, _numbered(sql), types)
        _last((yield from execute(self._pgconn)))
        self._prepared[sql, types] = name
        return name

    def _rows(self, result: PGresult) -> list[Row]:
        adapter = self._adapter
        adapter.set_pgresult(result)
        rows = adapter.load_rows(0, result.ntuples, tuple)
        adapter.set_pgresult(None)
        return rows


def _numbered(sql: str) -> bytes:
    """With the placeholders that PostgreSQL knows: $1 and so on."""
    numbers = count(1)
    return _PLACEHOLDER.sub(lambda p: "%" if p[1] == "%" else f"${next(numbers)}", sql).encode()


def _last(results: list[PGresult]) -> PGresult:
    result = results[-1]
    if result.status == ExecStatus.FATAL_ERROR:
        raise errors.error_from_result(result)
    return result


class Session(psycopg.Connection[Any]):
    def __init__(self, pgconn: PGconn, **options: Any) -> None:
        super().__init__(pgconn, **options)
        self._wire = _Wire(pgconn)

    def ask(self, statement: Statement[Any]) -> list[Row]:
        """The rows of a statement that is a transaction of its own."""
        return self.wait(self._wire.exchange(statement, self.prepare_threshold is not None))


class AsyncSession(psycopg.AsyncConnection[Any]):
    def __init__(self, pgconn: PGconn, **options: Any) -> None:
        super().__init__(pgconn, **options)
        self._wire = _Wire(pgconn)

    async def ask(self, statement: Statement[Any]) -> list[Row]:
        """The rows of a statement that is a transaction of its own."""
        return await self.wait(self._wire.exchange(statement, self.prepare_threshold is not None))


class Sessions(ConnectionPool[Session]):
    """A pool that has at hand what was given back last.

    What is at hand counts as handed out. The pool gets it back when somebody is waiting there for a
    connection, and every few seconds.
    """

    def __init__(self, dsn: str, **options: Any) -> None:
        self._at_hand: list[Session] = []
        self._wanted = 0  # by so many threads, who ask the pool because nothing was at hand
        self._counting = threading.Lock()
        self._settle_at = 0.0
        super().__init__(dsn, connection_class=Session, **options)

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
        if conn.pgconn.transaction_status != _IDLE:
            super().putconn(conn)  # which knows what to do with it
            return
        self._at_hand.append(conn)
        if self._wanted or self.closed or time.monotonic() >= self._settle_at:
            self._settle()

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
        self._wanted = 0
        self._settle_at = 0.0
        super().__init__(dsn, connection_class=AsyncSession, **options)

    async def getconn(self, timeout: float | None = None) -> AsyncSession:  # noqa: ASYNC109
        if self._at_hand:
            return self._at_hand.pop()
        self._wanted += 1
        try:
            return await super().getconn(timeout)
        finally:
            self._wanted -= 1

    async def putconn(self, conn: AsyncSession) -> None:
        if conn.pgconn.transaction_status != _IDLE:
            await super().putconn(conn)
            return
        self._at_hand.append(conn)
        if self._wanted or self.closed or time.monotonic() >= self._settle_at:
            await self._settle()

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109
        await super().close(timeout)
        await self._settle()

    async def _settle(self) -> None:
        self._settle_at = time.monotonic() + AT_HAND
        while self._at_hand:
            await super().putconn(self._at_hand.pop())
