"""Pools of connections of our own, which have at hand what was given back a moment ago.

Psycopg's pools hand out what has rested longest, under a lock, with statistics and a log; next to a small
statement that takes long.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout
from psycopg_pool.pool import AddConnection
from psycopg_pool.pool_async import AddConnection as AsyncAddConnection

from headrace import forking
from headrace.explaining import NoConnection
from headrace.sessions import ABANDON, BOUND, AsyncSession, Session

AT_HAND = 10.0  # seconds until a pool sees its connections again and can replace or close some
# Seconds for which a pool tries to replace a connection, each time after twice as long; then it begins anew. Else, after a
# minute without PostgreSQL, it would not look for another minute whether it is back.
REPLACING = 4.0

_IDLE, _ACTIVE = TransactionStatus.IDLE, TransactionStatus.ACTIVE
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
    connection, and every few seconds. `bound`: seconds for a call, from when it asks for a connection. In a forked child it
    begins anew, with connections of the child's own; `join` is called before the first one, to have the server stay.
    """

    def __init__(
        self,
        dsn: str,
        *,
        join: Callable[[], object] | None = None,
        bound: float = BOUND,
        **options: Any,
    ) -> None:
        self.bound = bound
        self._origin = dsn, join, options
        self._is_inherited = False
        self._at_hand: list[Session] = []
        self._wanted = 0  # by so many threads, who ask the pool because nothing was at hand
        self._counting = threading.Lock()
        self._looking = threading.Lock()
        self._settle_at = 0.0
        self.dropped: list[None] = []
        self.replaced = 0
        super().__init__(
            dsn,
            connection_class=Session,
            reconnect_failed=_try_again,
            reconnect_timeout=REPLACING,
            **{"timeout": bound, **options},
        )
        forking.register(self)

    def after_fork(self) -> None:
        if not self.closed:
            dsn, join, options = self._origin
            Sessions.__init__(self, dsn, join=join, bound=self.bound, **options)
            self._is_inherited = True

    def grow(self, count: int) -> None:
        """Have so many connections more at most. Psycopg's `resize` is to be awaited, in one of two kinds of pools."""
        self._max_size += count

    def getconn(self, timeout: float | None = None) -> Session:
        until = time.monotonic() + self.bound
        try:
            session = self._at_hand.pop()
        except IndexError:
            session = self._ask_pool(timeout)
        else:
            if not session.is_usable():
                self.putconn(session)
                return self.getconn(timeout)
        session.until, session.bound = until, self.bound
        return session

    def _ask_pool(self, timeout: float | None) -> Session:
        if self._is_inherited:
            self._open_here()
        while self.dropped:
            self.dropped.pop()
            self.replaced += 1
            self.run_task(AddConnection(self))
        with self._counting:
            self._wanted += 1
        try:
            # Again: who gave one back meanwhile has not seen that it is wanted. Who does so from now on
            # sees it.
            return self._at_hand.pop()
        except IndexError:
            return self._ask_psycopg(timeout)
        finally:
            with self._counting:
                self._wanted -= 1

    def _open_here(self) -> None:
        with self._counting:
            if self._is_inherited:
                join = self._origin[1]
                if join is not None:
                    join()
                self.open()
                self._is_inherited = False

    def putconn(self, conn: Session) -> None:
        # No method of the session is called: Ctrl-C could come there, and the pool would miss it for ever.
        conn.until = None
        if conn.pgconn.transaction_status == _ACTIVE:  # its call was given up
            threading.Thread(target=self._abandon, args=[conn], daemon=True).start()
            return
        if conn.pgconn.pipeline_status != _OFF:  # somebody was interrupted between two steps
            conn.pgconn.finish()
        if conn.pgconn.transaction_status != _IDLE:
            if conn.is_inherited:
                return
            is_lost = conn.closed
            self._give_back(conn)  # to psycopg's, which knows what to do with it
            if is_lost:
                self._look_at_others()
            return
        conn.given_back_at = now = time.monotonic()
        self._at_hand.append(conn)
        if self._wanted or self.closed or now >= self._settle_at:
            self._settle()

    def _ask_psycopg(self, timeout: float | None) -> Session:
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        try:
            while True:
                session = super().getconn(until - time.monotonic())
                session.taken_from = self
                if session.is_usable():
                    return session
                self._give_back(session)
        except PoolTimeout as error:
            raise none_in_time(self, timeout) from error

    def _give_back(self, session: Session) -> None:
        super().putconn(session)
        session.taken_from = None

    def _abandon(self, session: Session) -> None:
        """Have the server stop what nobody waits for any more, else it would keep its locks and its session for as long
        as it likes. In a thread: the server may not even answer that."""
        with suppress(Exception):
            session.cancel_safe(timeout=ABANDON)
        session.pgconn.finish()
        self._give_back(session)

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

    @staticmethod
    def check_connection(conn: Session) -> None:
        conn.command(b"")  # by which nothing is prepared

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
            self._give_back(session)


class AsyncSessions(AsyncConnectionPool[AsyncSession]):
    """The same for asyncio, where nobody comes in between, and any await may be the last: a caller that is cancelled there
    must not take a connection with it. So what the pool gets back it gets in a task of its own."""

    def __init__(
        self,
        dsn: str,
        *,
        join: Callable[[], object] | None = None,
        bound: float = BOUND,
        **options: Any,
    ) -> None:
        self.bound = bound
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
        forking.register(self)

    def after_fork(self) -> None:
        if not self.closed:
            dsn, join, options = self._origin
            _inherited.append(dict(vars(self)))
            AsyncSessions.__init__(self, dsn, join=join, bound=self.bound, **options)
            # Psycopg makes it when the pool is opened, and only if there is none: the parent's may be locked for ever.
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
            self.run_task(AsyncAddConnection(self))
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

    async def _open_here(self) -> None:
        """Once, whoever is cancelled meanwhile."""
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
        if conn.pgconn.pipeline_status != _OFF and conn.pgconn.transaction_status != _ACTIVE:
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
        """Psycopg's pool knows what to do with one that is broken, or in the middle of something."""
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


# What the parent's pools held. The child keeps it: asyncio complains of a task that is dropped while it is pending.
_inherited: list[dict[str, Any]] = []


class _UntilCancelled:
    """The queue of tasks of a pool's worker. It ends the worker once the worker was cancelled.

    Psycopg's worker goes on if it is cancelled in the middle of a task, and `asyncio.run` waits for every task that it cancels:
    a program that does not close its client would never end."""

    def __init__(self, tasks: Any) -> None:
        self._tasks = tasks

    async def get(self) -> Any:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise asyncio.CancelledError
        return await self._tasks.get()


def none_in_time(
    pool: Sessions | AsyncSessions, timeout: float | None
) -> NoConnection:  # which is a PoolTimeout
    waited = pool.timeout if timeout is None else timeout
    return NoConnection(
        f"no connection to PostgreSQL was free, or could be made, within {waited:g} s: nothing was stored"
    )


def _try_again(pool: ConnectionPool[Any]) -> None:
    pool.check()  # which has it grow: somebody may be waiting


async def _try_again_soon(pool: AsyncConnectionPool[Any]) -> None:
    await pool.check()
