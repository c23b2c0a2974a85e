"""Pools of connections of our own, which keep returned connections ready for the next call.

Psycopg's pools hand out the connection that has rested longest, under a lock, with statistics
and a log; beside a small statement that takes long.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout
from psycopg_pool.base import AttemptWithBackoff
from psycopg_pool.pool import AddConnection

from headrace.driver.explain import NoConnection
from headrace.driver.session import Session
from headrace.driver.session_state import ABANDON, BOUND, SessionState
from headrace.engine import fork

AT_HAND = 10.0  # seconds until a pool sees its connections again and can replace or close some
# Seconds for which a pool tries to replace a connection, each time after twice as long; then it
# starts over. Otherwise, after a minute without PostgreSQL, it would not try for another minute
# whether it is back.
REPLACING = 4.0
LONGEST_PAUSE = 0.5  # seconds between two attempts to connect

_IDLE, _ACTIVE = TransactionStatus.IDLE, TransactionStatus.ACTIVE
_OFF = PipelineStatus.OFF


class Attempt(AttemptWithBackoff):
    """To connect. The first one comes at once; psycopg's second one would come a second later."""

    INITIAL_DELAY = 0.05
    DELAY_JITTER = 0.25

    def update_delay(self, now: float) -> None:
        super().update_delay(now)
        self.delay = min(self.delay, LONGEST_PAUSE)


def _is_of_others(record: logging.LogRecord) -> bool:
    """Psycopg's pools log every attempt to connect and every lost connection. For ours, the
    component that needs the connection logs that once."""
    about = record.args[0] if isinstance(record.args, tuple) and record.args else None
    is_ours = isinstance(about, SessionState) or str(about).startswith("headrace")
    return record.levelno >= logging.ERROR or not is_ours


logging.getLogger("psycopg.pool").addFilter(_is_of_others)


class Sessions(ConnectionPool[Session]):
    """A pool that hands out the connection that was returned last.

    A connection that is kept ready counts as handed out. Psycopg's pool gets it back when a
    caller waits there for a connection, and every few seconds. `bound`: seconds for a call, from
    when it asks for a connection. In a forked child the pool starts over, with connections of
    the child's own; `join` is called before the first one, to keep the server running.
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
        # The number of threads that ask psycopg's pool because no connection was ready.
        self._wanted = 0
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
        fork.register(self)

    def after_fork(self) -> None:
        if not self.closed:
            dsn, join, options = self._origin
            Sessions.__init__(self, dsn, join=join, bound=self.bound, **options)
            self._is_inherited = True

    def grow(self, count: int) -> None:
        """Allow `count` connections more. Psycopg's `resize` must be awaited in one of the two
        kinds of pools."""
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
            # Again: a thread that returned a connection meanwhile has not seen that it is wanted.
            # Threads that return one from now on see it.
            return self._at_hand.pop()
        except IndexError:
            return self._ask_psycopg(timeout)
        finally:
            with self._counting:
                self._wanted -= 1

    def _add_connection(self, attempt: AttemptWithBackoff | None, growing: bool = False) -> None:
        super()._add_connection(attempt or Attempt(timeout=self.reconnect_timeout), growing)

    def _open_here(self) -> None:
        with self._counting:
            if self._is_inherited:
                join = self._origin[1]
                if join is not None:
                    join()
                self.open()
                self._is_inherited = False

    def putconn(self, conn: Session) -> None:
        # No method of the session is called: Ctrl-C could come there, and the pool would miss it
        # for ever.
        conn.until = None
        if conn.pgconn.transaction_status == _ACTIVE:  # its call was given up
            threading.Thread(target=self._abandon, args=[conn], daemon=True).start()
            return
        # A caller was interrupted between two steps, or a standby is where the leader was.
        if conn.pgconn.pipeline_status != _OFF or conn.takes_no_writes:
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
        """Have the server stop a statement whose caller has left, else it would keep its locks
        and its session for as long as it likes. In a thread: the server may not even answer
        that."""
        with suppress(Exception):
            session.cancel_safe(timeout=ABANDON)
        session.pgconn.finish()
        self._give_back(session)

    def _look_at_others(self) -> None:
        """When one connection is lost, the others usually are too: without this check each would
        fail a caller."""
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


def none_in_time(
    pool: ConnectionPool[Any] | AsyncConnectionPool[Any], timeout: float | None
) -> NoConnection:  # which is a PoolTimeout
    return none_within(pool.timeout if timeout is None else timeout)


def none_within(seconds: float) -> NoConnection:
    return NoConnection(
        f"no connection to PostgreSQL was free, or could be made, within {seconds:g} s: "
        "nothing was stored"
    )


def _try_again(pool: ConnectionPool[Any]) -> None:
    pool.check()  # which makes it grow: a caller may be waiting
