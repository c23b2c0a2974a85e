"""A connection of our own, used by one call at a time and always in autocommit.

A caller's connection is used as psycopg's users use it, through cursors. Here statements go to
libpq as they are, which takes half the time. Handlers are given such connections too, and use
them as psycopg's users do: in several threads, of which one waits for the other, and in
pipelines.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Any, Self, TypeVar

import psycopg
from psycopg.abc import PQGen, PQGenConn
from psycopg.errors import ConnectionTimeout
from psycopg.pq.abc import PGconn

from headrace.driver import hosts
from headrace.driver.session_state import BOUND, LOOK, UNBOUNDED, SessionState
from headrace.driver.wire import Overdue, Replies, Wire, within
from headrace.engine import fork
from headrace.engine.statement import Row, Statement

T = TypeVar("T")

_connect_by: ContextVar[float] = ContextVar("headrace_connect_by", default=inf)


class Session(SessionState, psycopg.Connection[Any]):
    """A connection for plain callers."""

    def __init__(self, pgconn: PGconn, **options: Any) -> None:
        super().__init__(pgconn, **options)
        self._wire = Wire(pgconn)
        self.made_at = self.given_back_at = monotonic()
        self._prepared._prepared_idx = secrets.randbits(60)  # see wire._named
        self.add_notice_handler(self._wire.noticed)
        self.bound = BOUND
        """Seconds that a call may take, or each statement where no call is known."""
        self.until: float | None = None
        """When the present call must end, by the monotonic clock. None: no call has set it."""
        fork.register(self)

    @classmethod
    def connect(cls, conninfo: str = "", **options: Any) -> Self:
        session = super().connect(hosts.ordered(conninfo), **options)
        session.has_others = hosts.several(conninfo)
        return session

    @classmethod
    def connect_within(cls, bound: float, conninfo: str, **options: Any) -> Self:
        """Connect within `bound` seconds, for all hosts and addresses together: connect_timeout
        is for each of them."""
        hurry = _connect_by.set(monotonic() + bound)
        try:
            session = cls.connect(conninfo, **options)
        finally:
            _connect_by.reset(hurry)
        session.bound = bound
        return session

    @classmethod
    def _connect_gen(cls, conninfo: str = "", **options: Any) -> PQGenConn[Self]:
        return _connecting(_connect_by.get(), super()._connect_gen(conninfo, **options))

    def wait(self, gen: PQGen[T], interval: float = LOOK, timeout: float | None = None) -> T:
        """All of psycopg's waiting comes through here, so nothing on a session of ours waits for
        ever."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        if self.until == UNBOUNDED:
            return super().wait(gen, interval)
        return super().wait(within(self.bound, self._ends_at, gen), interval)

    @property
    def _ends_at(self) -> float:
        return monotonic() + self.bound if self.until is None else self.until

    def ask(self, statement: Statement[Any]) -> list[Row]:
        """The rows of a statement that is a transaction of its own."""
        return self._complete(self._wire.exchange(statement, self.prepare_threshold is not None))

    def ask_all(
        self,
        statements: Iterable[Statement[Any]],
        *,
        begin: bool,
        commit: bool,
        after: Sequence[Statement[Any]] | None = None,
    ) -> Replies:
        """The rows of several statements that are sent one behind the other, together with the
        commands that begin and end their transaction, and with the statements that follow it.
        Their time depends on their number: each reply restarts the call's time limit."""
        exchange = self._wire.exchange_all(statements, begin=begin, commit=commit, after=after)
        return self._wire.read_all(self._complete(exchange, progress=True))

    def command(self, words: bytes) -> None:
        """Send commands that begin or end transactions: one or several, none of which returns
        rows."""
        self._complete(self._wire.command(words))

    def _complete(self, exchange: PQGen[T], *, progress: bool = False) -> T:
        bounded = within(self.bound, self._ends_at, exchange, progress=progress)
        try:
            with self.lock:
                reply = super().wait(bounded, LOOK)
        except psycopg.OperationalError as error:
            if isinstance(error, Overdue):
                self.leave_host()
            if self._wire.says_all(error):
                raise
            raise self._wire.judged(error) from error
        self._wire.check_replicated()
        return reply

    def cancel_safe(self, **options: Any) -> None:
        """Psycopg calls it when it is interrupted, and then reads on."""
        self._wire.stop()
        super().cancel_safe(**options)

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:  # all of them, as psycopg does after a rollback
            self._wire.forget()
        yield from super()._deallocate(name)


def _connecting(until: float, attempt: PQGenConn[T]) -> PQGenConn[T]:
    """An attempt to connect that ends in time."""
    try:
        ready: Any = None
        while True:
            if monotonic() >= until:
                raise ConnectionTimeout("connection timeout expired")
            ready = yield attempt.send(ready)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
