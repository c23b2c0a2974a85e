"""Connections of our own, each used by one call at a time and always in autocommit.

A caller's connection is used as psycopg's users use it, through cursors. Here statements go to libpq as
they are, which takes half the time. Handlers are given such connections, too, and use them as psycopg's users do: from
several tasks or threads, of which one waits for the other, and in pipelines.
"""

from __future__ import annotations

import asyncio
import secrets
import select
from collections.abc import Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from math import inf
from time import monotonic
from typing import Any, Generic, Protocol, Self, TypeVar

import psycopg
from psycopg.abc import PQGen, PQGenConn
from psycopg.errors import ConnectionTimeout
from psycopg.pq import PGconn as LibpqConnection
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.waiting import Ready, Wait

from headrace import forking
from headrace.exchanges import Overdue, Replies, Wire, within
from headrace.statements import Row, Statement

T = TypeVar("T")

# Seconds after which a connection is looked at before it is used: the server, or what is in between, may have ended it.
RESTED = 0.1
AT_ONCE = 0.2  # seconds that a cancelled call waits for the server to stop its statement
ABANDON = 5.0  # seconds for a statement to end that nobody waits for any more
BOUND = 30.0  # seconds that a call may take, unless its client says otherwise
LOOK = 0.1  # seconds between two looks at the clock, as psycopg has it to notice Ctrl-C
UNBOUNDED = inf  # until then: it is in the hands of a handler, whose own affair it is how long its statements take

_connect_by: ContextVar[float] = ContextVar("headrace_connect_by", default=inf)


class Dropping(Protocol):
    """A pool, which replaces what whoever took it was interrupted too early to give back. A list, because that is all that
    may be touched when Python collects garbage."""

    dropped: list[None]


class Session(psycopg.Connection[Any]):
    is_inherited = False
    taken_from: Dropping | None = None
    # Of one that is lent to handlers, see node.lending:
    as_lent: Sequence[Any] = ()  # see statements.SESSION_STATE
    factories: tuple[Any, Any] = (None, None)
    preparing: tuple[int | None, int | None] = (None, None)
    needs_a_search = False  # a handler may have left what only a search finds
    may_hold_locks = False  # that are the session's, see pg_advisory_lock
    is_deaf = False  # unless told, the server sends it no warnings
    hearing = 0  # how many handlers of notices are ours
    is_bystander = False  # the server has ended it because another one crashed

    def __init__(self, pgconn: PGconn, **options: Any) -> None:
        super().__init__(pgconn, **options)
        self._wire = Wire(pgconn)
        self.given_back_at = monotonic()
        self._prepared._prepared_idx = secrets.randbits(60)  # see exchanges._named
        self.add_notice_handler(self._wire.noticed)
        self.bound = BOUND
        """Seconds that a call may take, or each statement where no call is known."""
        self.until: float | None = None
        """When the call ends that it is used for, by the monotonic clock. None: nobody has said."""
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
        return monotonic() - self.given_back_at < RESTED or is_silent(self.pgconn)

    @classmethod
    def connect_within(cls, bound: float, conninfo: str, **options: Any) -> Self:
        """In so many seconds, for all hosts and addresses together: connect_timeout is for each of them."""
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
        """All of psycopg's waiting comes by here, so nothing on a session of ours waits for ever."""
        if timeout is not None:
            return super().wait(gen, interval, timeout)
        if self.until == UNBOUNDED:
            return super().wait(gen, interval)
        return super().wait(within(self.bound, self._ends_at, gen), interval)

    @property
    def _ends_at(self) -> float:
        return monotonic() + self.bound if self.until is None else self.until

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
        self,
        statements: Iterable[Statement[Any]],
        *,
        begin: bool,
        commit: bool,
        after: Sequence[Statement[Any]] | None = None,
    ) -> Replies:
        """The rows of several that are sent one behind the other, and with them what begins and ends their transaction, and
        what is to be done after that. How long they take together depends on how many they are: each answer begins the
        call's time anew."""
        exchange = self._wire.exchange_all(statements, begin=begin, commit=commit, after=after)
        return self._wire.read_all(self._complete(exchange, progress=True))

    def command(self, words: bytes) -> None:
        """What begins and ends transactions: one command or several, none of which answers anything."""
        self._complete(self._wire.command(words))

    def _complete(self, exchange: PQGen[T], *, progress: bool = False) -> T:
        bounded = within(self.bound, self._ends_at, exchange, progress=progress)
        try:
            with self.lock:
                reply = super().wait(bounded, LOOK)
        except psycopg.OperationalError as error:
            if self._wire.says_all(error):
                raise
            raise self._wire.judged(error) from error
        self._wire.check_replicated()
        return reply

    def cancel_safe(self, **options: Any) -> None:
        """Psycopg calls it when it is interrupted, and then reads on."""
        self._wire.stop()
        super().cancel_safe(**options)

    def forget_prepared(self) -> None:
        """The server has discarded all."""
        self._prepared.clear()
        self._wire.forget()

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:  # all of them, as psycopg does after a rollback
            self._wire.forget()
        yield from super()._deallocate(name)


class AsyncSession(psycopg.AsyncConnection[Any]):
    is_inherited = False
    taken_from: Dropping | None = None
    # Of one that is lent to handlers, see node.lending:
    as_lent: Sequence[Any] = ()  # see statements.SESSION_STATE
    factories: tuple[Any, Any] = (None, None)
    preparing: tuple[int | None, int | None] = (None, None)
    needs_a_search = False  # a handler may have left what only a search finds
    may_hold_locks = False  # that are the session's, see pg_advisory_lock
    is_deaf = False  # unless told, the server sends it no warnings
    hearing = 0  # how many handlers of notices are ours
    is_bystander = False  # the server has ended it because another one crashed

    def __init__(self, pgconn: PGconn, **options: Any) -> None:
        super().__init__(pgconn, **options)
        self._wire = Wire(pgconn)
        self.given_back_at = monotonic()
        self._prepared._prepared_idx = secrets.randbits(60)  # see exchanges._named
        self.add_notice_handler(self._wire.noticed)
        self.bound = BOUND
        self.until: float | None = None
        self._alarm = _Alarm()
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
        return monotonic() - self.given_back_at < RESTED or is_silent(self.pgconn)

    @classmethod
    async def connect_within(cls, bound: float, conninfo: str, **options: Any) -> Self:
        """In so many seconds, for all hosts and addresses together: connect_timeout is for each of them."""
        try:
            async with asyncio.timeout(bound):
                session = await cls.connect(conninfo, **options)
        except TimeoutError:
            raise ConnectionTimeout("connection timeout expired") from None
        session.bound = bound
        return session

    async def wait(self, gen: PQGen[T], interval: float = LOOK, timeout: float | None = None) -> T:  # noqa: ASYNC109
        """All of psycopg's waiting comes by here, so nothing on a session of ours waits for ever."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        if self.until != UNBOUNDED:
            return await self._step_through(gen)
        if interval != LOOK:  # the generator is to be asked again and again
            return await super().wait(gen, interval)
        try:  # a handler's statement: our stepper takes fewer turns of the event loop than psycopg's wait
            return await self._step_through(gen)
        except asyncio.CancelledError:
            await self._abandon(gen)
            raise

    async def _step_through(self, exchange: PQGen[T], *, progress: bool = False) -> T:
        stepper = _Stepper(exchange, self.pgconn.socket)
        if self.until != UNBOUNDED:
            until = monotonic() + self.bound if self.until is None else self.until
            self._alarm.set(stepper, self.bound, until, progress)
        try:
            return await stepper.run()
        finally:
            self._alarm.unset()

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
        self,
        statements: Iterable[Statement[Any]],
        *,
        begin: bool,
        commit: bool,
        after: Sequence[Statement[Any]] | None = None,
    ) -> Replies:
        """The rows of several that are sent one behind the other, and with them what begins and ends their transaction, and
        what is to be done after that. How long they take together depends on how many they are: each answer begins the
        call's time anew."""
        exchange = self._wire.exchange_all(statements, begin=begin, commit=commit, after=after)
        return self._wire.read_all(await self._complete(exchange, progress=True))

    async def command(self, words: bytes) -> None:
        """What begins and ends transactions: one command or several, none of which answers anything."""
        await self._complete(self._wire.command(words))

    async def _complete(self, exchange: PQGen[T], *, progress: bool = False) -> T:
        async with self.lock:
            try:
                reply = await self._step_through(exchange, progress=progress)
            except asyncio.CancelledError:
                await self._abandon(exchange)
                raise
            except psycopg.OperationalError as error:
                if self._wire.says_all(error):
                    raise
                raise self._wire.judged(error) from error
            self._wire.check_replicated()
            return reply

    async def cancel_safe(self, **options: Any) -> None:
        self._wire.stop()
        await super().cancel_safe(**options)

    def forget_prepared(self) -> None:
        """The server has discarded all."""
        self._prepared.clear()
        self._wire.forget()

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:
            self._wire.forget()
        yield from super()._deallocate(name)

    async def _abandon(self, exchange: PQGen[Any]) -> None:
        """Have the server stop the statement. A cancelled call must end soon, so a server that does not stop it at once is left to
        the pool, which closes this connection."""
        if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            with suppress(Exception):
                async with asyncio.timeout(AT_ONCE):
                    await self.cancel_safe(timeout=AT_ONCE)
                    await _Stepper(exchange, self.pgconn.socket).run()


class _Stepper(Generic[T]):
    """Takes an exchange to its end, a step whenever the loop says that there is something to read.

    A thousand events come in forty pieces. Psycopg wakes a task for each of them, which asks to be woken
    for the next one; that takes as long as to read them.
    """

    def __init__(self, exchange: PQGen[T], socket: int) -> None:
        self._exchange = exchange
        self._socket = socket
        self.loop = asyncio.get_running_loop()
        self._writing = False
        self.stepped_at = 0.0
        """When something was last sent to the server, or heard of it."""

    async def run(self) -> T:
        try:
            wanted = next(self._exchange)
        except StopIteration as end:  # as most parts of a COPY do: then the loop is left alone
            return end.value  # type: ignore[no-any-return]
        self._done: asyncio.Future[T] = self.loop.create_future()
        self.stepped_at = monotonic()
        self.loop.add_reader(self._socket, self._step, Ready.R)
        self._watch_for_writing(bool(wanted & Wait.W))
        try:
            return await self._done
        except asyncio.CancelledError:
            self._stop_watching()
            raise

    def _step(self, ready: Ready) -> None:
        if self._done.done():
            return
        try:
            wanted = self._exchange.send(ready)
        except StopIteration as end:
            self._stop_watching()
            self._done.set_result(end.value)
        except BaseException as error:
            self._stop_watching()
            self._done.set_exception(error)
        else:
            self.stepped_at = monotonic()
            self._watch_for_writing(bool(wanted & Wait.W))
            if is_cut(self._socket):
                self.loop.call_soon(self._step, Ready.R)

    def give_up(self, error: Exception) -> None:
        if not self._done.done():
            self._stop_watching()
            self._done.set_exception(error)

    def _watch_for_writing(self, writing: bool) -> None:
        if writing and not self._writing:
            self.loop.add_writer(self._socket, self._step, Ready.W)
        elif self._writing and not writing:
            self.loop.remove_writer(self._socket)
        self._writing = writing

    def _stop_watching(self) -> None:
        # Before anything else happens: a connection that is lost has closed its socket, and the next
        # one that is opened gets its number. Asyncio forgets what is closed, and complains.
        with suppress(OSError):
            self.loop.remove_reader(self._socket)
        with suppress(OSError):
            self._watch_for_writing(False)


class _Alarm:
    """Ends an exchange whose time is up. Its timer is kept from one exchange to the next: one for each would cost more
    than anything else that is done here for a small statement."""

    __slots__ = ("_at", "_bound", "_progress", "_stepper", "_timer", "_until")

    def __init__(self) -> None:
        self._stepper: _Stepper[Any] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._bound = self._until = self._at = 0.0
        self._progress = False

    def set(self, stepper: _Stepper[Any], bound: float, until: float, progress: bool) -> None:
        self._stepper, self._bound, self._until, self._progress = stepper, bound, until, progress
        if self._timer is None or self._at > until:
            self._wind(stepper.loop)

    def unset(self) -> None:
        self._stepper = None

    def _wind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = self._until
        self._timer = loop.call_later(max(0.0, self._until - monotonic()), self._ring)

    def _ring(self) -> None:
        self._timer = None
        stepper = self._stepper
        if stepper is None:
            return
        if self._progress:
            self._until = max(self._until, stepper.stepped_at + self._bound)
        if monotonic() >= self._until:
            stepper.give_up(Overdue(self._bound))
        else:
            self._wind(stepper.loop)


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
