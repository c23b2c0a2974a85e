"""The same as pool.py for asyncio: a pool that keeps returned connections ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout
from psycopg_pool.base import AttemptWithBackoff
from psycopg_pool.pool_async import AddConnection

from headrace.driver.async_session import AsyncSession
from headrace.driver.pool import AT_HAND, REPLACING, Attempt, none_in_time
from headrace.driver.session_state import ABANDON, BOUND
from headrace.engine import fork

_IDLE, _ACTIVE = TransactionStatus.IDLE, TransactionStatus.ACTIVE
_OFF = PipelineStatus.OFF


class AsyncSessions(AsyncConnectionPool[AsyncSession]):
    """The same for asyncio. No other task runs between two awaits, and any await may be the
    last: a caller that is cancelled there must not take a connection with it. So connections go
    back to psycopg's pool in tasks of their own."""

    def __init__(
        self,
        dsn: str,
        *,
        join: Callable[[], object] | None = None,
        bound: float = BOUND,
        **options: Any,
    ) -> None:
        self.bound = bound
        self.connected: Callable[[Exception | None], object] = lambda error: None
        """Is told of every connection that is made, and of every error that was in its way."""
        self._origin = dsn, join, options
        self._opening: asyncio.Task[None] | None = None
        self._is_inherited = False
        self._is_closing = False
        self._at_hand: list[AsyncSession] = []
        self._looking: asyncio.Task[None] | None = None
        self._returning: set[asyncio.Task[None]] = set()
        self._abandoning: set[asyncio.Task[None]] = set()
        self._wanted = 0
        self._settle_at = 0.0
        self.dropped: list[None] = []
        self.replaced = 0
        super().__init__(
            dsn,
            connection_class=AsyncSession,
            reconnect_failed=_try_again_soon,
            reconnect_timeout=REPLACING,
            **{"timeout": bound, **options},
        )
        fork.register(self)

    def after_fork(self) -> None:
        if not self.closed:
            dsn, join, options = self._origin
            _inherited.append(dict(vars(self)))
            AsyncSessions.__init__(self, dsn, join=join, bound=self.bound, **options)
            # Psycopg makes it when the pool is opened, and only if there is none: the parent's may
            # be locked for ever.
            vars(self).pop("_lock", None)
            self._is_inherited = True

    def grow(self, count: int) -> None:
        """As Sessions.grow."""
        self._max_size += count

    async def getconn(self, timeout: float | None = None) -> AsyncSession:  # noqa: ASYNC109
        until = time.monotonic() + self.bound
        session = self._from_hand()
        if session is None:
            session = await self._ask_pool(timeout)
        session.until, session.bound = until, self.bound
        return session

    def _from_hand(self) -> AsyncSession | None:
        while self._at_hand:
            session = self._at_hand.pop()
            if session.is_usable():
                return session
            self._put_aside(session)
        return None

    async def _ask_pool(self, timeout: float | None) -> AsyncSession:  # noqa: ASYNC109
        if self._is_inherited:
            await self._open_here()
        while self.dropped:
            self.dropped.pop()
            self.replaced += 1
            self.run_task(AddConnection(self))
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        self._wanted += 1
        try:
            while True:
                session = await super().getconn(deadline - time.monotonic())
                session.taken_from = self
                if session.is_usable():
                    return session
                self._give_back(session)
        except PoolTimeout as error:
            raise none_in_time(self, timeout) from error
        finally:
            self._wanted -= 1

    async def _add_connection(
        self, attempt: AttemptWithBackoff | None, growing: bool = False
    ) -> None:
        await super()._add_connection(attempt or Attempt(timeout=self.reconnect_timeout), growing)

    async def _connect(self, timeout: float | None = None) -> AsyncSession:  # noqa: ASYNC109
        try:
            session = await super()._connect(timeout)
        except Exception as error:
            self.connected(error)
            raise
        self.connected(None)
        return session

    async def _open_here(self) -> None:
        """Open the pool once, whichever callers are cancelled meanwhile."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._join_and_open())
        await asyncio.shield(self._opening)

    async def _join_and_open(self) -> None:
        try:
            join = self._origin[1]
            if join is not None:
                await asyncio.to_thread(join)
            await self.open()
            self._is_inherited = False
        finally:
            self._opening = None

    async def putconn(self, conn: AsyncSession) -> None:
        conn.until = None
        is_over = conn.pgconn.pipeline_status != _OFF or conn.takes_no_writes
        if is_over and conn.pgconn.transaction_status != _ACTIVE:
            conn.pgconn.finish()
        if conn.pgconn.transaction_status != _IDLE:
            if not conn.is_inherited:
                self._put_aside(conn)
            return
        conn.given_back_at = now = time.monotonic()
        self._at_hand.append(conn)
        if self._wanted or self.closed or now >= self._settle_at:
            self._settle()

    def _put_aside(self, session: AsyncSession) -> None:
        """Psycopg's pool knows what to do with a connection that is broken, or in the middle of
        a statement."""
        is_lost = session.closed
        self._give_back(session)
        if is_lost and self._looking is None and not self.closed:
            self._looking = asyncio.create_task(self._look())

    def _give_back(self, session: AsyncSession) -> None:
        is_at_work = session.pgconn.transaction_status == _ACTIVE
        returning = asyncio.create_task(
            self._abandon(session) if is_at_work else self._return(session)
        )
        tasks = self._abandoning if is_at_work else self._returning
        tasks.add(returning)
        returning.add_done_callback(tasks.discard)

    async def _abandon(self, session: AsyncSession) -> None:
        """See Sessions._abandon."""
        try:
            with suppress(Exception):
                await session.cancel_safe(timeout=ABANDON)
        finally:
            session.pgconn.finish()
            await self._return(session)

    @classmethod
    async def worker(cls, q: Any) -> None:
        await super().worker(_UntilCancelled(q))  # type: ignore[arg-type]

    async def _return(self, session: AsyncSession) -> None:
        await super().putconn(session)
        session.taken_from = None

    async def _look(self) -> None:
        try:
            self._settle()
            if self._returning:  # only what the pool has back is looked at
                await asyncio.wait(self._returning.copy())
            await self.check()
        finally:
            self._looking = None

    @staticmethod
    async def check_connection(conn: AsyncSession) -> None:
        await conn.command(b"")

    async def close(self, timeout: float = 5.0) -> None:  # noqa: ASYNC109
        if self._is_closing:  # nothing new comes in: a second close has nothing to wait for
            return
        self._is_closing = True
        left = {*self._abandoning, *filter(None, [self._looking])}
        for task in left:  # a server that does not answer is not waited for
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=timeout)
        await super().close(timeout)
        self._settle()
        if self._returning:
            await asyncio.wait(self._returning, timeout=timeout)

    def _settle(self) -> None:
        self._settle_at = time.monotonic() + AT_HAND
        while self._at_hand:
            self._give_back(self._at_hand.pop())


# The state of the parent's pools. The child keeps it: asyncio complains about a task that is
# dropped while it is pending.
_inherited: list[dict[str, Any]] = []


class _UntilCancelled:
    """The queue of tasks of a pool's worker. It ends the worker once the worker was cancelled.

    Psycopg's worker goes on if it is cancelled in the middle of a task, and `asyncio.run` waits
    for every task that it cancels: a program that does not close its client would never end.
    """

    def __init__(self, tasks: Any) -> None:
        self._tasks = tasks

    async def get(self) -> Any:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise asyncio.CancelledError
        return await self._tasks.get()


async def _try_again_soon(pool: AsyncConnectionPool[Any]) -> None:
    await pool.check()
