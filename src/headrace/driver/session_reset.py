"""Resets the connections that handlers get: each comes back as it was given, or is replaced.

The node sends `reset all` in the message that begins a handler's transaction: it undoes the
settings of the handler before. (Behind the COMMIT it would be a transaction of its own, which
costs several percent of a small handler.) `reset all` comes too late for some settings, and does
not undo roles and temporary tables: the statement that completes the event returns them
(inside.SESSION_STATE), and if they have changed the node tidies the session at once.
Attributes of the connection object are put back here. LISTEN, PREPARE and cursors WITH HOLD can
only be found by a search, so the node looks for these words in the handler's statements, and
discards everything if there was one. It releases session-level advisory locks if a statement may
have taken one: the statement contains the word "advisory", or is not an INSERT, UPDATE or
DELETE.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import AsyncCursor, AsyncServerCursor, Cursor, ServerCursor, postgres, sql
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from headrace.driver.async_session import AsyncSession
from headrace.driver.connect import HEAR_WARNINGS
from headrace.driver.session import Session
from headrace.driver.wire import Replies
from headrace.engine.inside import SESSION_STATE
from headrace.engine.statement import Statement

CRASH_OF_ANOTHER = "57P02"

RESET: Statement[None] = Statement("reset all", (), lambda rows: None)
# Behind the COMMIT, and not before it: a lock is to be held until what it guards is committed.
UNLOCK: Statement[None] = Statement(
    "select pg_catalog.pg_advisory_unlock_all()", (), lambda rows: None
)
LOOK: Statement[Any] = Statement(
    f"select {SESSION_STATE}, pg_catalog.current_setting('client_min_messages') operator(pg_catalog.=) 'error'",
    (),
    lambda rows: rows[0],
)
HEAR: Statement[None] = Statement(HEAR_WARNINGS.decode(), (), lambda rows: None)
TIDYING = (RESET, UNLOCK, LOOK, HEAR)
DISCARD_TEMP, DISCARD_ALL = b"discard temp", b"discard all"

_LASTING = re.compile(r"\b(listen|prepare|hold)\b")
_WRITING = ("insert", "update", "delete")


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
    if not words.lstrip().startswith(_WRITING) or "advisory" in words:
        connection.may_hold_locks = True
    # Most have none of them, and an expression takes ten times as long to say so.
    if ("listen" in words or "prepare" in words or "hold" in words) and _LASTING.search(words):
        connection.needs_a_search = True


def lend(connection: Session) -> None:
    """Make a new connection one that is lent, and note what it is like."""
    _watch(connection)
    if connection.can_pipeline:
        answers = [connection.ask(statement) for statement in TIDYING]  # and they are prepared
        *connection.as_lent, connection.is_deaf = LOOK.read(answers[2])


async def lend_async(connection: AsyncSession) -> None:
    _watch(connection)
    if connection.can_pipeline:
        answers = [await connection.ask(statement) for statement in TIDYING]
        *connection.as_lent, connection.is_deaf = LOOK.read(answers[2])


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
    """Put back the attributes that a handler may have set on the object. The rest can be set
    between transactions only."""
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
    """Whether nothing was registered with these adapters. They share all that is not their own
    with the general ones, so this comparison takes no time."""
    general = postgres.adapters
    return (
        adapters._dumpers == general._dumpers
        and adapters._dumpers_by_oid == general._dumpers_by_oid
        and adapters._loaders == general._loaders
        and adapters.types._registry is general.types._registry
    )


def begin(connection: Session | AsyncSession, words: bytes) -> bytes:
    """The command that begins a handler's transaction and undoes the settings of the handler
    before it."""
    if not connection.can_pipeline:  # the session may be a pooler's
        return words
    if connection.is_deaf:  # which is how the server is configured
        return b"reset all; set client_min_messages = warning; " + words
    return b"reset all; " + words


def behind_commit(connection: Session | AsyncSession) -> list[Statement[None]]:
    """The statements to send along with a COMMIT."""
    return [UNLOCK] if connection.may_hold_locks else []


def tidy(connection: Session, replies: Replies | None = None) -> None:
    """Make the session as it was. `replies`: to a completion, its COMMIT and the statements
    behind it. If the session cannot be reset it is closed, and its pool replaces it."""
    if not connection.can_pipeline or connection.closed:
        return
    with suppress(psycopg.Error):
        if replies is None or not _is_as_lent(connection, replies):
            replies = connection.ask_all(TIDYING, begin=False, commit=False)
            command = _left(connection, replies)
            if command:
                connection.command(command)
        connection.may_hold_locks = False
        return
    with suppress(psycopg.Error):
        connection.close()


async def tidy_async(connection: AsyncSession, replies: Replies | None = None) -> None:
    if not connection.can_pipeline or connection.closed:
        return
    with suppress(psycopg.Error):
        if replies is None or not _is_as_lent(connection, replies):
            replies = await connection.ask_all(TIDYING, begin=False, commit=False)
            command = _left(connection, replies)
            if command:
                await connection.command(command)
        connection.may_hold_locks = False
        return
    with suppress(psycopg.Error):
        await connection.close()


def _is_as_lent(connection: Session | AsyncSession, replies: Replies) -> bool:
    """Whether the session is as it was, as seen at the end of the transaction: a role that was
    set for the transaction alone is looked for again."""
    if replies.error is not None:
        raise replies.error[1]
    (_, *seen), *_ = replies.rows[0][1]
    return not connection.needs_a_search and seen == connection.as_lent


def _left(connection: Session | AsyncSession, replies: Replies) -> bytes | None:
    """The command that discards the rest of what a handler has left; None: it has left nothing
    more."""
    if replies.error is not None:
        raise replies.error[1]
    user, session_user, temporary, *_ = LOOK.read(replies.rows[2][1])
    if connection.needs_a_search or [user, session_user] != connection.as_lent[:2]:
        connection.needs_a_search = False
        connection.forget_prepared()
        return DISCARD_ALL
    return DISCARD_TEMP if temporary != connection.as_lent[2] else None
