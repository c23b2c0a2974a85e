"""Runs statements through psycopg, plainly or awaiting: the same few lines twice, and all the I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar, overload

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from headrace.calls import Steps
from headrace.errors import HeadraceError, InvalidInput
from headrace.sessions import AsyncSession, Session
from headrace.statements import Statement, Together

AHEAD = 4  # statements of a pipeline whose replies are not awaited yet: they are kept in memory

T = TypeVar("T")
SyncConnection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
Cursor = psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]


def drive(
    connection: SyncConnection,
    steps: Steps[T],
    step: Statement[Any] | Together,
    *,
    prepare: bool,
    commit: bool = False,
) -> T:
    """Run a call from its first step to its end; `commit`: each step is a transaction of its own."""
    while True:
        try:
            try:
                reply = run(connection, step, prepare=prepare)
                if commit:
                    connection.commit()
            except Exception as error:
                if commit and not connection.closed:
                    connection.rollback()
                step = steps.throw(error)
            else:
                step = steps.send(reply)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


async def drive_async(
    connection: AsyncConnection,
    steps: Steps[T],
    step: Statement[Any] | Together,
    *,
    prepare: bool,
    commit: bool = False,
) -> T:
    """Run a call from its first step to its end; `commit`: each step is a transaction of its own."""
    while True:
        try:
            try:
                reply = await run_async(connection, step, prepare=prepare)
                if commit:
                    await connection.commit()
            except Exception as error:
                if commit and not connection.closed:
                    await connection.rollback()
                step = steps.throw(error)
            else:
                step = steps.send(reply)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


@overload
def run(connection: SyncConnection, step: Statement[T], *, prepare: bool) -> T: ...
@overload
def run(connection: SyncConnection, step: Together, *, prepare: bool) -> list[Any]: ...
def run(connection: SyncConnection, step: Statement[Any] | Together, *, prepare: bool) -> Any:
    """Run a statement in whatever transaction the connection is in, and read its reply."""
    if isinstance(step, Together):
        return _run_together(connection, step, prepare)
    try:
        if isinstance(connection, Session):
            rows = connection.ask(step)
        else:
            cursor = psycopg.Cursor(connection, row_factory=tuple_row)
            cursor.execute(step.sql, step.params, binary=True, prepare=_threshold(prepare))
            rows = cursor.fetchall()
    except (psycopg.Error, UnicodeEncodeError) as error:
        _raise_ours(step, error)
        raise
    return step.read(rows)


def _run_together(connection: SyncConnection, together: Together, prepare: bool) -> list[Any]:
    sent: deque[tuple[Statement[Any], psycopg.Cursor[Any]]] = deque()
    replies: list[Any] = []
    with _explained(sent), _transaction(connection), _pipeline(connection, prepare):
        for one in together.statements:
            cursor = psycopg.Cursor(connection, row_factory=tuple_row)
            sent.append((one, cursor))
            cursor.execute(one.sql, one.params, binary=True, prepare=_threshold(prepare))
            if len(sent) > AHEAD:
                replies.append(sent[0][0].read(sent[0][1].fetchall()))
                sent.popleft()
        return replies + [one.read(cursor.fetchall()) for one, cursor in sent]


@overload
async def run_async(connection: AsyncConnection, step: Statement[T], *, prepare: bool) -> T: ...
@overload
async def run_async(connection: AsyncConnection, step: Together, *, prepare: bool) -> list[Any]: ...
async def run_async(
    connection: AsyncConnection, step: Statement[Any] | Together, *, prepare: bool
) -> Any:
    """Run a statement in whatever transaction the connection is in, and read its reply."""
    if isinstance(step, Together):
        return await _run_together_async(connection, step, prepare)
    try:
        if isinstance(connection, AsyncSession):
            rows = await connection.ask(step)
        else:
            cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
            await cursor.execute(step.sql, step.params, binary=True, prepare=_threshold(prepare))
            rows = await cursor.fetchall()
    except (psycopg.Error, UnicodeEncodeError) as error:
        _raise_ours(step, error)
        raise
    return step.read(rows)


async def _run_together_async(
    connection: AsyncConnection, together: Together, prepare: bool
) -> list[Any]:
    sent: deque[tuple[Statement[Any], psycopg.AsyncCursor[Any]]] = deque()
    replies: list[Any] = []
    with _explained(sent):
        async with _transaction(connection), _pipeline(connection, prepare):
            for one in together.statements:
                cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
                sent.append((one, cursor))
                await cursor.execute(one.sql, one.params, binary=True, prepare=_threshold(prepare))
                if len(sent) > AHEAD:
                    replies.append(sent[0][0].read(await sent[0][1].fetchall()))
                    sent.popleft()
            return replies + [one.read(await cursor.fetchall()) for one, cursor in sent]


def is_alone(connection: SyncConnection | AsyncConnection) -> bool:
    """Whether each statement is a transaction of its own."""
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE


def _transaction(connection: Any) -> Any:
    # Not in a transaction of the caller's: it would be committed, or end in a savepoint.
    return connection.transaction() if is_alone(connection) else nullcontext()


def _pipeline(connection: Any, prepare: bool) -> Any:
    # Where prepared statements do not work, there is a pooler, and pipelines may not work either.
    return connection.pipeline() if prepare else nullcontext()


def _threshold(prepare: bool) -> bool | None:
    return None if prepare else False  # None: when the connection says so


@contextmanager
def _explained(sent: Iterable[tuple[Statement[Any], Cursor]]) -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, UnicodeEncodeError) as error:
        # Of a pipeline, the first without a result is the one that failed: psycopg raises the error
        # wherever it happens to learn of it.
        failed = next((statement for statement, cursor in sent if cursor.pgresult is None), None)
        if failed:
            _raise_ours(failed, error)
        raise


def _raise_ours(statement: Statement[Any], error: psycopg.Error | UnicodeEncodeError) -> None:
    ours = _explain(statement, error)
    if ours is not None:
        raise ours from error


def _explain(
    statement: Statement[Any], error: psycopg.Error | UnicodeEncodeError
) -> HeadraceError | None:
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput("an argument has a lone surrogate, which is not a character")
    if error.sqlstate is None:
        # Without the server's word: an argument that psycopg cannot send, or a lost connection.
        return InvalidInput(str(error)) if isinstance(error, psycopg.DataError) else None
    message = error.diag.message_primary or str(error)
    return statement.explain(error.sqlstate, message, error.diag.message_detail)
