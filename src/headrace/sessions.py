"""Connections of our own, each used by one call at a time and always in autocommit.

A caller's connection is used as psycopg's users use it, through cursors. Here statements go to libpq as
they are, which takes half the time. Handlers are given such connections, too, and use them as psycopg's users do: from
several tasks or threads, of which one waits for the other, and in pipelines.
"""

from __future__ import annotations

import asyncio
import secrets
import select
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import PGconn as LibpqConnection
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.waiting import Ready, Wait

from headrace import forking
from headrace.exchanges import Replies, Wire
from headrace.statements import Row, Statement

T = TypeVar("T")

# Seconds after which a connection is looked at before it is used: the server, or what is in between, may have ended it.
RESTED = 0.1
ABANDON = 5.0  # seconds for a statement to end that nobody waits for any more


class Dropping(Protocol):
    """A pool, which replaces what whoever took it was interrupted too early to give back. A list, because that is all that
    may be touched when Python collects garbage."""

    dropped: list[None]


class Session(psycopg.Connection[Any]):
    is_inherited = False
    taken_from: Dropping | None = None

    def __init__(self, pgconn: PGconn, **options: Any) -> None:
        super().__init__(pgconn, **options)
        self._wire = Wire(pgconn)
        self.given_back_at = time.monotonic()
        self._prepared._prepared_idx = secrets.randbits(60)  # see exchanges._named
        forking.register(self)

    def after_fork(self) -> None:
        """It stays the parent's; here it is closed."""
        self.is_inherited, self.taken_from = True, None
        self.pgconn = _disown(self.pgconn)
        self._wire = Wire(self.pgconn)

    def __del__(self, *_: Any) -> None:
        if self.taken_from is not None:
            self.taken_from.dropped.append(None)
        super().__del__()

    def is_usable(self) -> bool:
        """Whether nothing has happened to it since it was given back, as far as can be known without asking."""
        return time.monotonic() - self.given_back_at < RESTED or is_silent(self.pgconn)

    @property
    def can_pipeline(self) -> bool:
        """Where statements cannot be prepared there is a pooler, and pipelines may not work either."""
        return self.prepare_threshold is not None

    @property
    def is_in_pipeline(self) -> bool:
        """A handler's, in which psycopg keeps count of what was sent."""
        return self.pgconn.pipeline_status != PipelineStatus.OFF

    def ask(self, statement: Statement[Any]) -> list[Row]:
        """The rows of a statement that is a transaction of its own."""
        return self._complete(self._wire.exchange(statement, self.prepare_threshold is not None))

    def ask_all(
        self, statements: Iterable[Statement[Any]], *, begin: bool, commit: bool
    ) -> Replies:
        """The rows of several that are sent one behind the other, and with them what begins and ends their transaction."""
        exchange = self._wire.exchange_all(statements, begin=begin, commit=commit)
        return self._wire.read_all(self._complete(exchange))

    def command(self, words: bytes) -> None:
        """What begins and ends transactions: one command or several, none of which answers anything."""
        self._complete(self._wire.command(words))

    def _complete(self, exchange: PQGen[T]) -> T:
        with self.lock:
            return self.wait(exchange)

    def cancel_safe(self, **options: Any) -> None:
        """Psycopg calls it when it is interrupted, and then reads on."""
        self._wire.stop()
        super().cancel_safe(**options)

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:  # all of them, as psycopg does after a rollback
            self._wire.forget()
        yield from super()._deallocate(name)


class AsyncSession(psycopg.AsyncConnection[Any]):
    is_inherited = False
    taken_from: Dropping | None = None

    def __init__(self, pgconn: PGconn, **options: Any) -> None:
        super().__init__(pgconn, **options)
        self._wire = Wire(pgconn)
        self.given_back_at = time.monotonic()
        self._prepared._prepared_idx = secrets.randbits(60)  # see exchanges._named
        forking.register(self)

    def after_fork(self) -> None:
        """It stays the parent's; here it is closed."""
        self.is_inherited, self.taken_from = True, None
        self.pgconn = _disown(self.pgconn)
        self._wire = Wire(self.pgconn)

    def __del__(self, *_: Any) -> None:
        if self.taken_from is not None:
            self.taken_from.dropped.append(None)
        super().__del__()

    def is_usable(self) -> bool:
        """Whether nothing has happened to it since it was given back, as far as can be known without asking."""
        return time.monotonic() - self.given_back_at < RESTED or is_silent(self.pgconn)

    @property
    def can_pipeline(self) -> bool:
        """Where statements cannot be prepared there is a pooler, and pipelines may not work either."""
        return self.prepare_threshold is not None

    @property
    def is_in_pipeline(self) -> bool:
        """A handler's, in which psycopg keeps count of what was sent."""
        return self.pgconn.pipeline_status != PipelineStatus.OFF

    async def ask(self, statement: Statement[Any]) -> list[Row]:
        """The rows of a statement that is a transaction of its own."""
        return await self._complete(
            self._wire.exchange(statement, self.prepare_threshold is not None)
        )

    async def ask_all(
        self, statements: Iterable[Statement[Any]], *, begin: bool, commit: bool
    ) -> Replies:
        """The rows of several that are sent one behind the other, and with them what begins and ends their transaction."""
        exchange = self._wire.exchange_all(statements, begin=begin, commit=commit)
        return self._wire.read_all(await self._complete(exchange))

    async def command(self, words: bytes) -> None:
        """What begins and ends transactions: one command or several, none of which answers anything."""
        await self._complete(self._wire.command(words))

    async def _complete(self, exchange: PQGen[T]) -> T:
        async with self.lock:
            try:
                return await _Stepper(exchange, self.pgconn.socket).run()
            except asyncio.CancelledError:
                await self._abandon(exchange)
                raise

    async def cancel_safe(self, **options: Any) -> None:
        self._wire.stop()
        await super().cancel_safe(**options)

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:
            self._wire.forget()
        yield from super()._deallocate(name)

    async def _abandon(self, exchange: PQGen[Any]) -> None:
        """Stop what the server is doing; if it does not, the pool will close this connection."""
        if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            with suppress(Exception):
                await self.cancel_safe(timeout=ABANDON)
                await asyncio.wait_for(self.wait(exchange), ABANDON)


class _Stepper(Generic[T]):
    """Takes an exchange to its end, a step whenever the loop says that there is something to read.

    A thousand events come in forty pieces. Psycopg wakes a task for each of them, which asks to be woken
    for the next one; that takes as long as to read them.
    """

    def __init__(self, exchange: PQGen[T], socket: int) -> None:
        self._exchange = exchange
        self._socket = socket
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[T] = self._loop.create_future()
        self._writing = False

    async def run(self) -> T:
        self._loop.add_reader(self._socket, self._step, Ready.R)
        self._step(None)
        try:
            return await self._done
        except asyncio.CancelledError:
            self._stop_watching()
            raise

    def _step(self, ready: Ready | None) -> None:
        if self._done.done():
            return
        try:
            wanted = self._exchange.send(ready)  # type: ignore[arg-type]  # None: it begins
        except StopIteration as end:
            self._stop_watching()
            self._done.set_result(end.value)
        except BaseException as error:
            self._stop_watching()
            self._done.set_exception(error)
        else:
            self._watch_for_writing(bool(wanted & Wait.W))
            if ready is not None and is_cut(self._socket):
                self._loop.call_soon(self._step, Ready.R)

    def _watch_for_writing(self, writing: bool) -> None:
        if writing and not self._writing:
            self._loop.add_writer(self._socket, self._step, Ready.W)
        elif self._writing and not writing:
            self._loop.remove_writer(self._socket)
        self._writing = writing

    def _stop_watching(self) -> None:
        # Before anything else happens: a connection that is lost has closed its socket, and the next
        # one that is opened gets its number. Asyncio forgets what is closed, and complains.
        with suppress(OSError):
            self._loop.remove_reader(self._socket)
        with suppress(OSError):
            self._watch_for_writing(False)


_disowned: list[PGconn] = []


def _disown(pgconn: PGconn) -> PGconn:
    """A closed connection in the place of one of the parent's, which is neither used nor finished here: libpq would say
    good-bye to the server, and a thread of the parent may have been in the middle of changing it."""
    with suppress(psycopg.Error):  # it was closed
        forking.mute(pgconn.socket)
    _disowned.append(pgconn)
    closed = LibpqConnection.connect_start(b"host=/ sslmode=disable gssencmode=disable")
    closed.finish()
    return closed


def is_silent(pgconn: PGconn) -> bool:
    """Whether the server has said nothing on a connection on which nobody asked anything; else it is closed here. Mostly the
    server has ended it, and the rest (a setting was changed) is so rare that another connection is no loss. Nothing was sent on
    this one, so whoever is given another does nothing twice."""
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
    """Whether the other end is gone, though there may be more to read. Uvloop tells of that once and stops
    watching, so whoever has not read to the end by then would wait for ever."""
    poll = select.poll()
    poll.register(socket, 0)  # errors are told of unasked
    return bool(poll.poll(0))
