"""The same as session.py for asyncio: a connection of our own, used by one task at a time."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any, Self, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.errors import ConnectionTimeout
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn

from headrace.driver import hosts
from headrace.driver.session_state import BOUND, LOOK, UNBOUNDED, SessionState
from headrace.driver.stepper import Alarm, Stepper
from headrace.driver.wire import Overdue, Replies, Wire
from headrace.engine import fork
from headrace.engine.statement import Row, Statement

T = TypeVar("T")

AT_ONCE = 0.2  # seconds that a cancelled call waits for the server to stop its statement


class AsyncSession(SessionState, psycopg.AsyncConnection[Any]):
    """A connection for asyncio."""

    def __init__(self, pgconn: PGconn, **options: Any) -> None:
        super().__init__(pgconn, **options)
        self._wire = Wire(pgconn)
        self.made_at = self.given_back_at = monotonic()
        self._prepared._prepared_idx = secrets.randbits(60)  # see wire._named
        self.add_notice_handler(self._wire.noticed)
        self.bound = BOUND
        self.until: float | None = None
        self._alarm = Alarm()
        fork.register(self)

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        session = await super().connect(hosts.ordered(conninfo), **options)
        session.has_others = hosts.several(conninfo)
        return session

    @classmethod
    async def connect_within(cls, bound: float, conninfo: str, **options: Any) -> Self:
        """Connect within `bound` seconds, for all hosts and addresses together: connect_timeout
        is for each of them."""
        try:
            async with asyncio.timeout(bound):
                session = await cls.connect(conninfo, **options)
        except TimeoutError:
            raise ConnectionTimeout("connection timeout expired") from None
        session.bound = bound
        return session

    async def wait(self, gen: PQGen[T], interval: float = LOOK, timeout: float | None = None) -> T:  # noqa: ASYNC109
        """All of psycopg's waiting comes through here, so nothing on a session of ours waits for
        ever."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        if self.until != UNBOUNDED:
            return await self._step_through(gen)
        if interval != LOOK:  # the generator is to be asked again and again
            return await super().wait(gen, interval)
        # A handler's statement: our stepper takes fewer turns of the event loop than psycopg's
        # wait.
        try:
            return await self._step_through(gen)
        except asyncio.CancelledError:
            await self._abandon(gen)
            raise

    async def _step_through(self, exchange: PQGen[T], *, progress: bool = False) -> T:
        stepper = Stepper(exchange, self.pgconn.socket)
        if self.until != UNBOUNDED:
            until = monotonic() + self.bound if self.until is None else self.until
            self._alarm.set(stepper, self.bound, until, progress)
        try:
            return await stepper.run()
        finally:
            self._alarm.unset()

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
        """The rows of several statements that are sent one behind the other, together with the
        commands that begin and end their transaction, and with the statements that follow it.
        Their time depends on their number: each reply restarts the call's time limit."""
        exchange = self._wire.exchange_all(statements, begin=begin, commit=commit, after=after)
        return self._wire.read_all(await self._complete(exchange, progress=True))

    async def command(self, words: bytes) -> None:
        """Send commands that begin or end transactions: one or several, none of which returns
        rows."""
        await self._complete(self._wire.command(words))

    async def _complete(self, exchange: PQGen[T], *, progress: bool = False) -> T:
        async with self.lock:
            try:
                reply = await self._step_through(exchange, progress=progress)
            except asyncio.CancelledError:
                await self._abandon(exchange)
                raise
            except psycopg.OperationalError as error:
                if isinstance(error, Overdue):
                    self.leave_host()
                if self._wire.says_all(error):
                    raise
                raise self._wire.judged(error) from error
            self._wire.check_replicated()
            return reply

    async def cancel_safe(self, **options: Any) -> None:
        self._wire.stop()
        await super().cancel_safe(**options)

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        if name is None:
            self._wire.forget()
        yield from super()._deallocate(name)

    async def _abandon(self, exchange: PQGen[Any]) -> None:
        """Have the server stop the statement. A cancelled call must end soon, so a server that
        does not stop it at once is left to the pool, which closes this connection."""
        if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
            with suppress(Exception):
                async with asyncio.timeout(AT_ONCE):
                    await self.cancel_safe(timeout=AT_ONCE)
                    await Stepper(exchange, self.pgconn.socket).run()
