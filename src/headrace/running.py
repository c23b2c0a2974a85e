"""Runs statements through psycopg, plainly or awaiting: the same few lines twice, and all the I/O."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, TypeVar, overload

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from headrace.calls import Steps
from headrace.errors import HeadraceError, InvalidInput
from headrace.statements import Statement, Together

T = TypeVar("T")
SyncConnection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]


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
                if commit:
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
                if commit:
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
        with _transaction(connection), _pipeline(connection, prepare):
            sent = [(one, _send(connection, one, prepare)) for one in step.statements]
            return [_read(one, cursor) for one, cursor in sent]
    return _read(step, _send(connection, step, prepare))


def _send(
    connection: SyncConnection, statement: Statement[Any], prepare: bool
) -> psycopg.Cursor[Any]:
    with _explained(statement):
        cursor = psycopg.Cursor(connection, row_factory=tuple_row)
        return cursor.execute(
            statement.sql, statement.params, binary=True, prepare=None if prepare else False
        )


def _read(statement: Statement[T], cursor: psycopg.Cursor[Any]) -> T:
    with _explained(statement):
        return statement.read(cursor.fetchall())


@overload
async def run_async(connection: AsyncConnection, step: Statement[T], *, prepare: bool) -> T: ...
@overload
async def run_async(connection: AsyncConnection, step: Together, *, prepare: bool) -> list[Any]: ...
async def run_async(
    connection: AsyncConnection, step: Statement[Any] | Together, *, prepare: bool
) -> Any:
    """Run a statement in whatever transaction the connection is in, and read its reply."""
    if isinstance(step, Together):
        async with _transaction(connection), _pipeline(connection, prepare):
            sent = [(one, await _send_async(connection, one, prepare)) for one in step.statements]
            return [await _read_async(one, cursor) for one, cursor in sent]
    return await _read_async(step, await _send_async(connection, step, prepare))


async def _send_async(
    connection: AsyncConnection, statement: Statement[Any], prepare: bool
) -> psycopg.AsyncCursor[Any]:
    with _explained(statement):
        cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
        return await cursor.execute(
            statement.sql, statement.params, binary=True, prepare=None if prepare else False
        )


async def _read_async(statement: Statement[T], cursor: psycopg.AsyncCursor[Any]) -> T:
    with _explained(statement):
        return statement.read(await cursor.fetchall())


def is_alone(connection: SyncConnection | AsyncConnection) -> bool:
    """Whether each statement is a transaction of its own."""
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE


def _transaction(connection: Any) -> Any:
    # Not in a transaction of the caller's: it would be committed, or end in a savepoint.
    return connection.transaction() if is_alone(connection) else nullcontext()


def _pipeline(connection: Any, prepare: bool) -> Any:
    # Where prepared statements do not work, there is a pooler, and pipelines may not work either.
    return connection.pipeline() if prepare else nullcontext()


@contextmanager
def _explained(statement: Statement[Any]) -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, UnicodeEncodeError) as error:
        ours = _explain(statement, error)
        if ours is None:
            raise
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
