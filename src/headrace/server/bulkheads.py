"""Bulkheads: limits for one token and one namespace, so that the server has room for the others.

A request is charged to its token and to its namespace. Each of them has a share of the connections,
of the streams and of the requests per second. Where no token is required, requests without one are
not charged.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.driver.async_pool import AsyncSessions
from headrace.driver.async_session import AsyncSession
from headrace.driver.explain import NoConnection
from headrace.driver.pool import none_in_time
from headrace.server.http.refusal import Refusal
from headrace.server.limits import Limits, ShareUsedUp

if TYPE_CHECKING:
    from headrace.server.http.operation import AdmittedClient

SLACK = 1e-6  # seconds by which a sum of fractions may be wrong
KEPT = 1000  # names that were charged a while ago
LATELY = 1.0  # seconds for which a caller counts as active after it used a connection
LONG = 0.1  # seconds: a caller that uses a connection for longer, while others are active, rests
REST, LONGEST_REST = 3, 5.0  # times as long as it used the connection, and seconds at most

_charged: ContextVar[tuple[str, ...]] = ContextVar("charged", default=())


def charge(*names: str) -> None:
    """From now on this task is charged to these names, and to no others."""
    _charged.set(names)


@contextmanager
def charged_to_namespace(namespace: str) -> Iterator[None]:
    """For work that serves several tokens of a namespace at once."""
    before = _charged.get()
    if before:
        charge(_namespace(namespace))
    try:
        yield
    finally:
        charge(*before)


@contextmanager
def uncharged() -> Iterator[None]:
    """For work that serves all callers, and is done by the first that needs it."""
    before = _charged.set(())
    try:
        yield
    finally:
        _charged.reset(before)


def names_of(caller: AdmittedClient, namespace: str | None) -> tuple[str, ...]:
    """The token always comes first: so no caller that waits for the share of a namespace keeps the
    share of another token."""
    if caller.is_anybody:
        return ()
    token = f"token {caller.name}"
    return (token,) if namespace is None else (token, _namespace(namespace))


def _namespace(namespace: str) -> str:
    return f"namespace {namespace}"


class Shares:
    """A number of places for each name. A caller that finds none left waits for a while."""

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
                raise ShareUsedUp(f"the {name!r} has used up its share of connections") from error
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
    """The callers that were active lately, in all pools of a server."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, ...], float] = {}

    def note(self, names: tuple[str, ...]) -> None:
        now = time.monotonic()
        if len(self._last) >= KEPT:
            self._last = {other: at for other, at in self._last.items() if at > now - LATELY}
        self._last[names] = now

    def has_others(self, names: tuple[str, ...]) -> bool:
        """Whether another caller is active, of another token and another namespace."""
        since = time.monotonic() - LATELY
        return any(at > since and not set(other) & set(names) for other, at in self._last.items())


class Lent(NamedTuple):
    """A connection in use."""

    names: tuple[str, ...]
    shares: tuple[Shares, ...]
    since: float


class SharedSessions(AsyncSessions):
    """A pool of which no charged name has more than half at once, and a quarter while others are
    active. A name that used a connection for long rests then: a share of the connections is a
    share of the processor, too."""

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
            if isinstance(
                error, NoConnection
            ):  # its message names the whole timeout, not the rest of it
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
    """A rate limit per second for each name; after a second of rest, all of it at once."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._free_at: dict[str, float] = {}
        """When the requests of a name no longer count."""

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
    """The limits of requests and streams; the pools have those of connections."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._pace = Pace(limits.requests) if limits.requests else None
        self._streams: Counter[str] = Counter()

    def enter(self, caller: AdmittedClient, namespace: str | None) -> None:
        """Charge a request to its token and namespace; raises a Refusal above their rate limit."""
        names = names_of(caller, namespace)
        if names and self._pace is not None and not self._pace.take(names):
            raise Refusal(
                429,
                "too_many_requests",
                f"This token or namespace is above the rate limit of {self._limits.requests:,} "
                "requests per second: try again.",
                headers={"Retry-After": "1"},
                limit=self._limits.requests,
            )
        charge(*names)

    @contextmanager
    def streaming(self, caller: AdmittedClient, namespace: str) -> Iterator[None]:
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

    def check_streams(self, caller: AdmittedClient, namespace: str) -> None:
        most = self._limits.streams
        if any(self._streams[name] >= most for name in names_of(caller, namespace)):
            raise Refusal(
                429,
                "too_many_streams",
                f"This token or namespace has the maximum of {most:,} open streams: close one, or "
                "try again later.",
                headers={"Retry-After": "10"},
                limit=most,
            )
