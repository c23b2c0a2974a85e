"""A runner: it runs the calls that verbs give, over a pool or over a connection of the caller's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, TypeAlias, TypeVar

from psycopg_pool import AsyncConnectionPool, ConnectionPool

from headrace.driver.async_batcher import AsyncBatcher
from headrace.driver.async_pool import AsyncSessions
from headrace.driver.batcher import Batcher
from headrace.driver.pool import Sessions
from headrace.driver.run import (
    AsyncRun,
    Run,
    committing,
    committing_async,
    drive,
    drive_async,
    is_alone,
    joining,
    joining_async,
    run,
    run_async,
    take_turns,
    take_turns_async,
)
from headrace.engine.caller import Connection
from headrace.engine.statement import Around, Statement, Steps, Turns
from headrace.engine.transfer import SNAPSHOT

T = TypeVar("T")
Pool: TypeAlias = ConnectionPool[Any]
AsyncPool: TypeAlias = AsyncConnectionPool[Any]


class Runner:
    """Over a pool, every call is a transaction of its own. Over a connection, a call takes part in
    its transaction."""

    def __init__(self, pool_or_connection: Pool | Connection, *, prepare: bool) -> None:
        self._source = pool_or_connection
        self._prepare = prepare
        if isinstance(pool_or_connection, Sessions):
            self._batcher = batcher_over(pool_or_connection, prepare)

    @property
    def over(self) -> tuple[Pool | Connection, bool]:
        """What it runs over, and whether statements are prepared."""
        return self._source, self._prepare

    def run(self, steps: Steps[T], connection: Connection | None = None) -> T:
        """Run a call, over this connection or else over the runner's own."""
        try:
            first = next(steps)  # a refused argument needs no connection
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if isinstance(first, Around):
            with first.manager as given:
                return self.run(first.steps(given), connection)  # type: ignore[no-any-return]
        if connection is not None or not isinstance(self._source, ConnectionPool):
            joined = self._source if connection is None else connection
            return drive(joining(joined, prepare=self._prepare), steps, first)
        if not isinstance(self._source, Sessions):
            with self._source.connection() as pooled:
                return drive(committing(pooled, prepare=self._prepare), steps, first)
        if (
            isinstance(first, Statement)
            and first.batchable
            and self._batcher.takes(first.batchable)
        ):
            return drive(self._batcher.ask, steps, first)
        session = self._source.getconn()
        try:
            return drive(joining(session, prepare=self._prepare), steps, first)
        finally:
            self._source.putconn(session)

    def take_turns(self, turns: Turns[T]) -> T:
        """Run a call that waits."""
        return take_turns(turns, self.run, time.sleep)

    @contextmanager
    def snapshot(self) -> Iterator[Run]:
        """Runs statements in one transaction that sees one moment: in the caller's, if this is over
        a connection that is in one."""
        with ExitStack() as stack:
            if isinstance(self._source, Sessions):
                connection: Any = self._source.getconn()
                stack.callback(self._source.putconn, connection)
            elif isinstance(self._source, ConnectionPool):
                connection = stack.enter_context(self._source.connection())
            else:
                connection = self._source
            if isinstance(self._source, ConnectionPool) or is_alone(connection):
                stack.enter_context(connection.transaction())
                connection.execute(SNAPSHOT, prepare=False)
            yield joining(connection, prepare=self._prepare)


class AsyncRunner:
    """The same, awaited."""

    def __init__(
        self,
        pool_or_connection: AsyncPool | Connection,
        *,
        prepare: bool,
        batcher: AsyncBatcher | None = None,
    ) -> None:
        self._source = pool_or_connection
        self._prepare = prepare
        if isinstance(pool_or_connection, AsyncSessions):
            self._batcher = batcher or async_batcher_over(pool_or_connection, prepare)

    @property
    def over(self) -> tuple[AsyncPool | Connection, bool]:
        """What it runs over, and whether statements are prepared."""
        return self._source, self._prepare

    async def run(self, steps: Steps[T], connection: Connection | None = None) -> T:
        """Run a call, over this connection or else over the runner's own."""
        try:
            first = next(steps)  # a refused argument needs no connection
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]
        if isinstance(first, Around):
            with first.manager as given:
                return await self.run(first.steps(given), connection)
        if connection is not None or not isinstance(self._source, AsyncConnectionPool):
            joined = self._source if connection is None else connection
            return await drive_async(joining_async(joined, prepare=self._prepare), steps, first)
        if not isinstance(self._source, AsyncSessions):
            async with self._source.connection() as pooled:
                return await drive_async(
                    committing_async(pooled, prepare=self._prepare), steps, first
                )
        if (
            isinstance(first, Statement)
            and first.batchable
            and self._batcher.takes(first.batchable)
        ):
            return await drive_async(self._batcher.ask, steps, first)
        session = await self._source.getconn()
        try:
            return await drive_async(joining_async(session, prepare=self._prepare), steps, first)
        finally:
            await self._source.putconn(session)

    async def take_turns(self, turns: Turns[T]) -> T:
        """Run a call that waits."""
        return await take_turns_async(turns, self.run, asyncio.sleep)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncRun]:
        """Runs statements in one transaction that sees one moment: in the caller's, if this is over
        a connection that is in one."""
        async with AsyncExitStack() as stack:
            if isinstance(self._source, AsyncSessions):
                connection: Any = await self._source.getconn()
                stack.push_async_callback(self._source.putconn, connection)
            elif isinstance(self._source, AsyncConnectionPool):
                connection = await stack.enter_async_context(self._source.connection())
            else:
                connection = self._source
            if isinstance(self._source, AsyncConnectionPool) or is_alone(connection):
                await stack.enter_async_context(connection.transaction())
                await connection.execute(SNAPSHOT, prepare=False)
            yield joining_async(connection, prepare=self._prepare)


def batcher_over(pool: Sessions, prepare: bool) -> Batcher:
    """Runs statements of many threads together."""

    def ask(statement: Statement[Any], until: float | None) -> Any:
        session = pool.getconn(None if until is None else max(0.0, until - time.monotonic()))
        try:
            if until is not None:
                session.until = until
            return run(session, statement, prepare=prepare)
        finally:
            pool.putconn(session)

    return Batcher(ask, lambda: pool.bound)


def async_batcher_over(pool: AsyncSessions, prepare: bool, **options: Any) -> AsyncBatcher:
    """Runs statements of many tasks together."""

    async def ask(statement: Statement[Any]) -> Any:
        session = await pool.getconn()
        try:
            return await run_async(session, statement, prepare=prepare)
        finally:
            await pool.putconn(session)

    return AsyncBatcher(ask, lambda: pool.bound, **options)


def alone_over(source: object) -> Callable[[Connection | None], bool]:
    """Tells whether each statement on a connection, or else of a runner over this source, is a
    transaction of its own."""
    is_pool = _is_pool(source)

    def tell(connection: Connection | None) -> bool:
        if connection is None:
            return is_pool or is_alone(source)
        return _is_pool(connection) or is_alone(connection)

    return tell


def _is_pool(source: object) -> bool:
    return isinstance(source, ConnectionPool | AsyncConnectionPool)
