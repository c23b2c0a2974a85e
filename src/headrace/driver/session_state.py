"""The common part of plain and async sessions: the pool they belong to, and the traces of a
handler in them."""

from __future__ import annotations

import select
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Any, Protocol

import psycopg
from psycopg.pq import PGconn as LibpqConnection
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn

from headrace.driver import hosts
from headrace.driver.wire import Wire
from headrace.engine import fork

# Seconds after which a connection is checked before it is used: the server, or a proxy, may have
# closed it.
RESTED = 0.1
ABANDON = 5.0  # seconds for the server to stop a statement whose caller has left
BOUND = 30.0  # seconds that a call may take, unless its client says otherwise
LOOK = 0.1  # seconds between two looks at the clock, as psycopg has it to notice Ctrl-C
UNBOUNDED = (
    inf  # as `until`: a handler uses the session, and its statements may take as long as it likes
)


class Dropping(Protocol):
    """A pool that replaces the connections of callers which were interrupted too early to give them
    back. It has a list, because nothing else may be touched while Python collects garbage."""

    dropped: list[None]


class SessionState:
    """The state of a session beside psycopg's."""

    pgconn: PGconn
    prepare_threshold: int | None
    _prepared: Any
    _wire: Wire
    given_back_at: float
    """When its pool got it back, by the monotonic clock."""
    made_at: float
    has_others = False
    """Its DSN names other hosts too."""

    takes_no_writes = False
    """Its pool replaces it."""
    is_inherited = False
    """It belongs to the process that this one was forked from."""
    taken_from: Dropping | None = None
    # Of a session that handlers are given, see session_reset:
    as_lent: Sequence[Any] = ()  # see inside.SESSION_STATE
    factories: tuple[Any, Any] = (None, None)
    preparing: tuple[int | None, int | None] = (None, None)
    needs_a_search = False  # a handler may have left something that only a search finds
    may_hold_locks = False  # of the session, see pg_advisory_lock
    is_deaf = False  # the server sends it no warnings, unless a setting says otherwise
    hearing = 0  # the number of notice handlers that are ours
    is_bystander = False  # the server has closed it because another session crashed

    def after_fork(self) -> None:
        """The session stays the parent's; here it is closed."""
        self.is_inherited, self.taken_from = True, None
        self.pgconn = _disown(self.pgconn)
        self._wire = Wire(self.pgconn)

    def __del__(self, *_: Any) -> None:
        if self.taken_from is not None:
            self.taken_from.dropped.append(None)
        super().__del__()  # type: ignore[misc]

    def is_usable(self) -> bool:
        """Whether nothing has happened to it since it was given back, as far as can be known
        without a round trip."""
        if (
            self.has_others
            and hosts.anything_avoided()
            and hosts.was_left(*self._host, self.made_at)
        ):
            self.pgconn.finish()
            return False
        return monotonic() - self.given_back_at < RESTED or is_silent(self.pgconn)

    def leave_host(self) -> None:
        """Try other hosts first from now on: a call ran out of time on this one."""
        if self.has_others:
            hosts.avoid(*self._host)

    @property
    def _host(self) -> tuple[str, str]:
        return self.pgconn.host.decode(), self.pgconn.port.decode()

    @property
    def can_pipeline(self) -> bool:
        """If statements cannot be prepared, there is a pooler, and pipelines may not work either."""
        return self.prepare_threshold is not None

    @property
    def is_in_pipeline(self) -> bool:
        """Whether a handler has begun a pipeline, in which psycopg counts what was sent."""
        return self.pgconn.pipeline_status != PipelineStatus.OFF

    @property
    def is_at_work(self) -> bool:
        """Whether the server has not replied yet, though the caller has left."""
        return self.pgconn.transaction_status == TransactionStatus.ACTIVE

    def forget_prepared(self) -> None:
        """The server has discarded all prepared statements."""
        self._prepared.clear()
        self._wire.forget()


_disowned: list[PGconn] = []


def _disown(pgconn: PGconn) -> PGconn:
    """A closed connection in place of one of the parent's, which is neither used nor finished
    here: libpq would say good-bye to the server, and a thread of the parent may have been in the
    middle of changing it."""
    with suppress(psycopg.Error):  # it was closed
        fork.mute(pgconn.socket)
    _disowned.append(pgconn)
    closed = LibpqConnection.connect_start(b"host=/ sslmode=disable gssencmode=disable")
    closed.finish()
    return closed


def is_silent(pgconn: PGconn) -> bool:
    """Whether the server has sent nothing on an idle connection; if it has, the connection is
    closed here. Mostly the server has ended it, and the rest (a setting was changed) is so rare
    that another connection is no loss. Nothing was sent on this connection, so a caller that
    gets another one does nothing twice."""
    try:
        poll = select.poll()
        poll.register(pgconn.socket, select.POLLIN)
        if not poll.poll(0):
            return True
    except psycopg.OperationalError:  # it is closed
        pass
    pgconn.finish()
    return False


def is_cut(socket: int) -> bool:
    """Whether the other end has closed, though there may be more to read. Uvloop reports that
    once and stops watching, so a reader that has not read to the end by then would wait for
    ever."""
    poll = select.poll()
    poll.register(socket, 0)  # errors are reported without being asked for
    return bool(poll.poll(0))
