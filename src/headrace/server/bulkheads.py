"""Bulkheads: what one token and one namespace may take of a server, so that something is left for the others.

A request is charged to its token and to its namespace. Each of them has a share of the connections, of the
streams and of the requests a second; who comes without a token, where none is asked for, is charged to nobody.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.explaining import NoConnection
from headrace.pools import AsyncSessions, none_in_time
from headrace.server.failures import Refusal
from headrace.server.limits import Limits, ShareUsedUp
from headrace.sessions import AsyncSession

if TYPE_CHECKING:
    from headrace.server.operations import Caller

SLACK = 1e-6  # seconds by which a sum of fractions may be wrong
KEPT = 1000  # of those that were charged a while ago
LATELY = 1.0  # seconds for which somebody who used a connection counts as at work
LONG = 0.1  # seconds: who has a connection for longer, while others are at work, rests
REST, LONGEST_REST = 3, 5.0  # times as long as the connection was used, and seconds at most

_charged: ContextVar[tuple[str, ...]] = ContextVar("charged", default=())


def charge(*names: str) -> None:
    """From now on what this task does is charged to these, and to nobody else."""
    _charged.set(names)


def charge_namespace(namespace: str) -> None:
    """The same, for what is done for several tokens of a namespace at once."""
    if _charged.get():
        charge(_namespace(namespace))


@contextmanager
def uncharged() -> Iterator[None]:
    """What is done for everybody, by whoever needs it first."""
    before = _charged.set(())
    try:
        yield
    finally:
        _charged.reset(before)


def names_of(caller: Caller, namespace: str | None) -> tuple[str, ...]:
    """The token first, everywhere: so nobody waits for a namespace's share with the one of another token."""
    if caller.is_anybody:
        return ()
    token = f"token {caller.name}"
    return (token,) if namespace is None else (token, _namespace(namespace))


def _namespace(namespace: str) -> str:
    return f"namespace {namespace}"


class Shares:
    """So many at once for each name. Who comes when there is none left waits for a while."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._turns: dict[str, asyncio.Semaphore] = {}

    async def enter(self, names: tuple[str, ...], patience: float) -> None:
        entered: list[str] = []
        try:
            async with asyncio.timeout(patience):
                for name in names:
                    await self._turn(name).acquire()
                    entered.append(name)
        except BaseException as error:
            self.leave(entered)
            if isinstance(error, TimeoutError):
                raise ShareUsedUp(f"the {name!r} has used its share of connections") from error
            raise

    def leave(self, names: Iterable[str]) -> None:
        for name in names:
            self._turns[name].release()

    def _turn(self, name: str) -> asyncio.Semaphore:
        turn = self._turns.get(name)
        if turn is None:
            if len(self._turns) >= KEPT:
                self._turns = {name: its for name, its in self._turns.items() if self._is_used(its)}
            turn = self._turns[name] = asyncio.Semaphore(self._size)
        return turn

    def _is_used(self, turn: asyncio.Semaphore) -> bool:
        return turn.locked() or turn._value < self._size


class Crowd:
    """Who was at work lately, in all pools of a server."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], float] = {}

    def note(self, names: tuple[str, ...]) -> None:
        now = time.monotonic()
        if len(self._last) >= KEPT:
            self._last = {other: at for other, at in self._last.items() if at > now - LATELY}
        self._last[names] = now

    def has_others(self, names: tuple[str, ...]) -> bool:
        """Whether somebody else is at work, of another token and another namespace."""
        since = time.monotonic() - LATELY
        return any(at > since and not set(other) & set(names) for other, at in self._last.items())


class Lent(NamedTuple):
    """A connection that somebody has."""

    names: tuple[str, ...]
    shares: tuple[Shares, ...]
    since: float


class SharedSessions(AsyncSessions):
    """A pool of which nobody who is charged has more than half at once, and a quarter while others are at work; who
    used a connection for long rests then: a share of connections is one of the server's processor, too."""

    def __init__(
        self, dsn: str, *, max_size: int, crowd: Crowd | None = None, **options: Any
    ) -> None:
        self._alone = Shares(max(1, max_size // 2))
        self._among_others = Shares(max(1, max_size // 4))
        self._crowd = crowd or Crowd()
        self._lent: dict[AsyncSession, Lent] = {}
        super().__init__(dsn, max_size=max_size, **options)

    async def getconn(self, timeout: float | None = None) -> AsyncSession:  # noqa: ASYNC109
        names = _charged.get()
        if not names:
            return await super().getconn(timeout)
        patience = self.timeout if timeout is None else timeout
        until = time.monotonic() + patience
        shares = await self._enter(names, until)
        try:
            session = await super().getconn(max(0.0, until - time.monotonic()))
        except BaseException as error:
            _leave(names, shares)
            if isinstance(error, NoConnection):  # after all of the time, not the rest of it
                raise none_in_time(self, timeout) from error
            raise
        self._lent[session] = Lent(names, shares, time.monotonic())
        return session

    async def putconn(self, conn: AsyncSession) -> None:
        lent = self._lent.pop(conn, None)
        try:
            await super().putconn(conn)
        finally:
            if lent is not None:
                self._end(lent)

    async def _enter(self, names: tuple[str, ...], until: float) -> tuple[Shares, ...]:
        self._crowd.note(names)
        wanted = (self._alone, self._among_others)[: 1 + self._crowd.has_others(names)]
        entered: list[Shares] = []
        try:
            for shares in wanted:
                await shares.enter(names, until - time.monotonic())
                entered.append(shares)
        except BaseException:
            _leave(names, entered)
            raise
        return wanted

    def _end(self, lent: Lent) -> None:
        used = time.monotonic() - lent.since
        if used > LONG and self._crowd.has_others(lent.names):
            rest = min(REST * used, LONGEST_REST)
            asyncio.get_running_loop().call_later(rest, _leave, lent.names, lent.shares)
        else:
            _leave(lent.names, lent.shares)


def _leave(names: tuple[str, ...], all_shares: Iterable[Shares]) -> None:
    for shares in all_shares:
        shares.leave(names)


class Pace:
    """So many a second for each name, and as many at once who has rested for a second."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._free_at: dict[str, float] = {}
        """When all that a name took will be as if it had not been."""

    def take(self, names: tuple[str, ...]) -> bool:
        now = time.monotonic()
        if len(self._free_at) >= KEPT:
            self._free_at = {name: at for name, at in self._free_at.items() if at > now}
        until = {name: max(now, self._free_at.get(name, 0.0)) + 1 / self._rate for name in names}
        if any(at > now + 1 + SLACK for at in until.values()):
            return False
        self._free_at.update(until)
        return True


class Bulkheads:
    """The shares of requests and streams; those of connections are the pools'."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pace = Pace(limits.requests) if limits.requests else None
        self._streams: Counter[str] = Counter()

    def enter(self, caller: Caller, namespace: str | None) -> None:
        """Charge a request to those who are to be charged; raises a Refusal if that is too much for one of them."""
        names = names_of(caller, namespace)
        if names and self._pace is not None and not self._pace.take(names):
            raise Refusal(
                429,
                "too_many_requests",
                f"A token, or a namespace, may send at most {self._limits.requests:,} requests a second here: try again.",
                headers={"Retry-After": "1"},
                limit=self._limits.requests,
            )
        charge(*names)

    @contextmanager
    def streaming(self, caller: Caller, namespace: str) -> Iterator[None]:
        names = names_of(caller, namespace)
        self.check_streams(caller, namespace)
        self._streams.update(names)
        try:
            yield
        finally:
            self._streams.subtract(names)
            for name in names:
                if not self._streams[name]:
                    del self._streams[name]

    def check_streams(self, caller: Caller, namespace: str) -> None:
        most = self._limits.streams
        if any(self._streams[name] >= most for name in names_of(caller, namespace)):
            raise Refusal(
                429,
                "too_many_streams",
                f"A token, or a namespace, may have at most {most:,} streams at once here: try again later.",
                headers={"Retry-After": "10"},
                limit=most,
            )
