"""The connections that handlers get: each comes back as it was given, or is replaced.

What a handler sets in the session is undone by two statements that are sent along with the COMMIT. What it sets on the object is put back here. The
few things which only a search finds in the session (LISTEN, PREPARE, cursors WITH HOLD) are taken to be there if a statement had such a word in
it, and then all is discarded: to search each time would cost more than all else.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncCursor, AsyncServerCursor, Cursor, ServerCursor, postgres, sql
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from headrace.exchanges import Replies
from headrace.opening import HEAR_WARNINGS
from headrace.sessions import AsyncSession, Session
from headrace.statements import Statement

CRASH_OF_ANOTHER = "57P02"

# Both go behind the COMMIT, and not before it: an advisory lock is to be held until what it guards is committed.
RESET: Statement[None] = Statement("reset all", (), lambda rows: None)
LOOK: Statement[Any] = Statement(
    "select current_user, session_user, pg_catalog.pg_my_temp_schema(), pg_catalog.pg_advisory_unlock_all(), "
    f"({HEAR_WARNINGS.decode()})",
    (),
    lambda rows: rows[0][:3],
)
TIDYING = (RESET, LOOK)
DISCARD_TEMP, DISCARD_ALL = b"discard temp", b"discard all"

_LASTING = re.compile(r"\b(listen|prepare|hold)\b")


class _Watched(Cursor[Any]):
    def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        _look(self.connection, query)
        return super().execute(query, *arguments, **options)

    def executemany(self, query: Any, *arguments: Any, **options: Any) -> None:
        _look(self.connection, query)
        super().executemany(query, *arguments, **options)


class _WatchedAsync(AsyncCursor[Any]):
    def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
        _look(self.connection, query)
        return super().execute(query, *arguments, **options)

    def executemany(self, query: Any, *arguments: Any, **options: Any) -> Any:
        _look(self.connection, query)
        return super().executemany(query, *arguments, **options)


class _WatchedServer(ServerCursor[Any]):
    def __init__(self, connection: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(connection, *arguments, **options)
        connection.needs_a_search |= self.withhold


class _WatchedAsyncServer(AsyncServerCursor[Any]):
    def __init__(self, connection: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(connection, *arguments, **options)
        connection.needs_a_search |= self.withhold


def _look(connection: Any, query: Any) -> None:
    """Take note of what only a search would find again."""
    if type(query) is not str:
        if isinstance(query, sql.Composable):
            query = query.as_string(connection)
        elif isinstance(query, bytes):
            query = query.decode(errors="replace")
        elif not isinstance(query, str):
            connection.needs_a_search = True
            return
    words = query.lower()
    # Most have none of them, and an expression takes ten times as long to say so.
    if ("listen" in words or "prepare" in words or "hold" in words) and _LASTING.search(words):
        connection.needs_a_search = True


def lend(connection: Session) -> None:
    """Make a new connection one that is lent, and note what it is like."""
    _watch(connection)
    if connection.can_pipeline:
        for statement in TIDYING:  # which are prepared with that
            rows = connection.ask(statement)
        connection.as_lent = LOOK.read(rows)


async def lend_async(connection: AsyncSession) -> None:
    _watch(connection)
    if connection.can_pipeline:
        for statement in TIDYING:
            rows = await connection.ask(statement)
        connection.as_lent = LOOK.read(rows)


def _watch(connection: Session | AsyncSession) -> None:
    is_plain = isinstance(connection, Session)
    connection.cursor_factory = _Watched if is_plain else _WatchedAsync
    connection.server_cursor_factory = _WatchedServer if is_plain else _WatchedAsyncServer
    connection.factories = connection.cursor_factory, connection.server_cursor_factory
    connection.preparing = connection.prepare_threshold, connection.prepared_max

    def hear(told: psycopg.errors.Diagnostic) -> None:
        if told.sqlstate == CRASH_OF_ANOTHER:
            connection.is_bystander = True

    connection.add_notice_handler(hear)
    connection.hearing = len(connection._notice_handlers)


def restore(connection: Session | AsyncSession) -> None:
    """Put back what a handler may have set on the object. The rest can be set between transactions only."""
    cursors, server_cursors = connection.factories
    if connection.cursor_factory is not cursors:
        connection.needs_a_search = True  # we have not seen what its own cursors did
        connection.cursor_factory = cursors
    connection.server_cursor_factory = server_cursors
    connection.row_factory = tuple_row
    if (connection.prepare_threshold, connection.prepared_max) != connection.preparing:
        connection.prepare_threshold, connection.prepared_max = connection.preparing
    if connection._adapters is not None and not _is_general(connection._adapters):
        connection._adapters = None  # the next one gets a copy of the general ones
    del connection._notice_handlers[connection.hearing :], connection._notify_handlers[:]


def _is_general(adapters: AdaptersMap) -> bool:
    """Whether nothing was registered with it. What is not its own it shares with the general ones, so this takes no time."""
    general = postgres.adapters
    return (
        adapters._dumpers == general._dumpers
        and adapters._dumpers_by_oid == general._dumpers_by_oid
        and adapters._loaders == general._loaders
        and adapters.types._registry is general.types._registry
    )


def tidy(connection: Session, replies: Replies | None = None) -> None:
    """Make the session as it was. `replies`: to what went behind the COMMIT. A session for which that cannot be done is closed, and its pool
    replaces it."""
    if not connection.can_pipeline or connection.closed:
        return
    with suppress(psycopg.Error):
        if replies is None:
            replies = connection.ask_all(TIDYING, begin=False, commit=False)
        command = _left(connection, replies)
        if command:
            connection.command(command)
        return
    with suppress(psycopg.Error):
        connection.close()


async def tidy_async(connection: AsyncSession, replies: Replies | None = None) -> None:
    if not connection.can_pipeline or connection.closed:
        return
    with suppress(psycopg.Error):
        if replies is None:
            replies = await connection.ask_all(TIDYING, begin=False, commit=False)
        command = _left(connection, replies)
        if command:
            await connection.command(command)
        return
    with suppress(psycopg.Error):
        await connection.close()


def _left(connection: Session | AsyncSession, replies: Replies) -> bytes | None:
    """What discards the rest of what a handler has left; None: it has left nothing more."""
    if replies.error is not None:
        raise replies.error[1]
    *who, temporary = LOOK.read(replies.rows[-1][1])
    if connection.needs_a_search or tuple(who) != connection.as_lent[:2]:
        connection.needs_a_search = False
        connection.forget_prepared()
        return DISCARD_ALL
    return DISCARD_TEMP if temporary != connection.as_lent[2] else None
