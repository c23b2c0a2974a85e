"""Runs the steps of calls, plainly or awaiting: the same few lines twice. Here is psycopg's I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar, overload

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from headrace.driver.async_session import AsyncSession
from headrace.driver.explain import (
    UNREPLICATED,
    NotStored,
    OutcomeUnknown,
    explain,
    is_unreplicated,
    unanswered,
)
from headrace.driver.others import join, join_async
from headrace.driver.session import Session
from headrace.driver.wire import AHEAD, Replies
from headrace.engine.statement import Statement, Steps, Together, Turns, ask

T = TypeVar("T")
SyncConnection = psycopg.Connection[Any]
AsyncConnection = psycopg.AsyncConnection[Any]
Cursor = psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]
Step: TypeAlias = Statement[Any] | Together
Run: TypeAlias = Callable[[Step], Any]
AsyncRun: TypeAlias = Callable[[Step], Awaitable[Any]]


def drive(run: Callable[[Any], Any], steps: Generator[Any, Any, T], step: Any) -> T:
    """Run a call from its first step to its end."""
    while True:
        try:
            try:
                reply = run(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


async def drive_async(
    run: Callable[[Any], Awaitable[Any]], steps: Generator[Any, Any, T], step: Any
) -> T:
    """Run a call from its first step to its end."""
    while True:
        try:
            try:
                reply = await run(step)
            except Exception as error:
                step = steps.throw(error)
            else:
                step = steps.send(reply)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def take_turns(
    turns: Turns[T], run: Callable[[Steps[Any]], Any], wait: Callable[[float], object]
) -> T:
    """Run a call that waits, turn by turn: how to run one, and how to wait, is given."""

    def take(turn: Any) -> Any:
        return wait(turn) if isinstance(turn, int | float) else run(_steps(turn))

    try:
        first = next(turns)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    return drive(take, turns, first)


async def take_turns_async(
    turns: Turns[T],
    run: Callable[[Steps[Any]], Awaitable[Any]],
    wait: Callable[[float], Awaitable[object]],
) -> T:
    """The same, awaited."""

    async def take(turn: Any) -> Any:
        return await (wait(turn) if isinstance(turn, int | float) else run(_steps(turn)))

    try:
        first = next(turns)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    return await drive_async(take, turns, first)


def _steps(turn: Statement[Any] | Steps[Any]) -> Steps[Any]:
    return ask(turn) if isinstance(turn, Statement) else turn


def joining(connection: object, *, prepare: bool) -> Run:
    """Runs steps in whatever transaction the connection is in, whatever library it is of."""
    if isinstance(connection, psycopg.Connection):
        return partial(run, connection, prepare=prepare)
    return join(connection).run


def joining_async(connection: object, *, prepare: bool) -> AsyncRun:
    """Runs steps in whatever transaction the connection is in, whatever library it is of."""
    if isinstance(connection, psycopg.AsyncConnection):
        return partial(run_async, connection, prepare=prepare)
    return join_async(connection).run


def committing(connection: SyncConnection, *, prepare: bool) -> Run:
    """Runs each step as a transaction of its own."""

    def run_and_commit(step: Step) -> Any:
        try:
            with _committed(connection):
                reply = run(connection, step, prepare=prepare)
                connection.commit()
        except Exception:
            if not connection.closed:
                connection.rollback()
            raise
        return reply

    return run_and_commit


def committing_async(connection: AsyncConnection, *, prepare: bool) -> AsyncRun:
    """Runs each step as a transaction of its own."""

    async def run_and_commit(step: Step) -> Any:
        try:
            with _committed(connection):
                reply = await run_async(connection, step, prepare=prepare)
                await connection.commit()
        except Exception:
            if not connection.closed:
                await connection.rollback()
            raise
        return reply

    return run_and_commit


@overload
def run(connection: SyncConnection, step: Statement[T], *, prepare: bool) -> T: ...
@overload
def run(connection: SyncConnection, step: Together, *, prepare: bool) -> list[Any]: ...
def run(connection: SyncConnection, step: Statement[Any] | Together, *, prepare: bool) -> Any:
    """Run a statement in whatever transaction the connection is in, and read its reply."""
    if isinstance(step, Together):
        return _run_together(connection, step, prepare)
    try:
        if isinstance(connection, Session) and not connection.is_in_pipeline:
            if step.has_its_own_time:
                connection.until = None
            rows = connection.ask(step)
        else:
            with _committed(connection) if is_alone(connection) else nullcontext():
                cursor = psycopg.Cursor(connection, row_factory=tuple_row)
                cursor.execute(step.sql, step.params, binary=True, prepare=_threshold(prepare))
            rows = cursor.fetchall()
    except (psycopg.Error, UnicodeEncodeError) as error:
        _raise_ours(step, error, connection)
        raise
    return step.read(rows)


def _run_together(connection: SyncConnection, together: Together, prepare: bool) -> list[Any]:
    # Not in a handler's transaction: its events may be made of what it looks up there meanwhile.
    if isinstance(connection, Session) and connection.can_pipeline and is_alone(connection):
        return _read(connection.ask_all(together.statements, begin=True, commit=True), connection)
    sent: deque[tuple[Statement[Any], psycopg.Cursor[Any]]] = deque()
    replies: list[Any] = []
    alone = _committed(connection) if is_alone(connection) else nullcontext()
    with _explained(sent), alone, _transaction(connection), _pipeline(connection, prepare):
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
        if isinstance(connection, AsyncSession) and not connection.is_in_pipeline:
            if step.has_its_own_time:
                connection.until = None
            rows = await connection.ask(step)
        else:
            with _committed(connection) if is_alone(connection) else nullcontext():
                cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
                await cursor.execute(
                    step.sql, step.params, binary=True, prepare=_threshold(prepare)
                )
            rows = await cursor.fetchall()
    except (psycopg.Error, UnicodeEncodeError) as error:
        _raise_ours(step, error, connection)
        raise
    return step.read(rows)


async def _run_together_async(
    connection: AsyncConnection, together: Together, prepare: bool
) -> list[Any]:
    if isinstance(connection, AsyncSession) and connection.can_pipeline and is_alone(connection):
        return _read(
            await connection.ask_all(together.statements, begin=True, commit=True), connection
        )
    sent: deque[tuple[Statement[Any], psycopg.AsyncCursor[Any]]] = deque()
    replies: list[Any] = []
    alone = _committed(connection) if is_alone(connection) else nullcontext()
    with _explained(sent), alone:
        async with _transaction(connection), _pipeline(connection, prepare):
            for one in together.statements:
                cursor = psycopg.AsyncCursor(connection, row_factory=tuple_row)
                sent.append((one, cursor))
                await cursor.execute(one.sql, one.params, binary=True, prepare=_threshold(prepare))
                if len(sent) > AHEAD:
                    replies.append(sent[0][0].read(await sent[0][1].fetchall()))
                    sent.popleft()
            return replies + [one.read(await cursor.fetchall()) for one, cursor in sent]


def _read(replies: Replies, connection: Session | AsyncSession) -> list[Any]:
    if replies.error is not None:
        statement, error = replies.error
        if statement is not None:
            _raise_ours(statement, error, connection)
        raise error
    return [statement.read(rows) for statement, rows in replies.rows]


def is_alone(connection: object) -> bool:
    """Whether each statement is surely a transaction of its own: of another library's connection
    that is not known."""
    if not isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
        return False
    return connection.autocommit and connection.info.transaction_status == TransactionStatus.IDLE


def _transaction(connection: Any) -> Any:
    # Not in a transaction of the caller's: it would be committed, or end in a savepoint.
    return connection.transaction() if is_alone(connection) else nullcontext()


@contextmanager
def _committed(connection: Any) -> Iterator[None]:
    """For a statement that commits by itself on a connection of the caller's: psycopg would
    report only success, or a lost connection."""
    unheard: list[bool] = []

    def hear(notice: psycopg.errors.Diagnostic) -> None:
        if is_unreplicated(notice):
            unheard.append(True)

    connection.add_notice_handler(hear)
    try:
        yield
    except psycopg.OperationalError as error:
        if not connection.closed:
            raise
        said = str(error).strip().partition("\n")[0]
        raise unanswered(f"the connection was lost ({said})", was_sent=True) from error
    finally:
        connection.remove_notice_handler(hear)
    if unheard:
        raise OutcomeUnknown(UNREPLICATED)


def _pipeline(connection: Any, prepare: bool) -> Any:
    # If prepared statements do not work, there is a pooler, and pipelines may not work either.
    return connection.pipeline() if prepare else nullcontext()


def _threshold(prepare: bool) -> bool | None:
    return None if prepare else False  # None: the connection's own setting


@contextmanager
def _explained(sent: Iterable[tuple[Statement[Any], Cursor]]) -> Iterator[None]:
    try:
        yield
    except (psycopg.Error, UnicodeEncodeError) as error:
        # Of a pipeline, the first without a result is the one that failed: psycopg raises the error
        # wherever it happens to learn of it.
        failed = next((statement for statement, cursor in sent if cursor.pgresult is None), None)
        if failed:
            _raise_ours(failed, error, None)
        raise


def _raise_ours(statement: Statement[Any], error: Exception, connection: object) -> None:
    if (
        isinstance(error, psycopg.errors.ReadOnlySqlTransaction)
        and isinstance(connection, Session | AsyncSession)
        and is_alone(connection)
    ):
        # A standby, where the leader was: a new connection finds who leads now.
        connection.leave_host()
        connection.takes_no_writes = True
        raise NotStored("the server takes no writes: nothing was stored") from error
    ours = explain(statement, error)
    if ours is not None:
        raise ours from error
