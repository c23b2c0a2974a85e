"""Wake-ups: whoever waits for work is told when there is some, by LISTEN on one connection for all queues.

Only a hint. Whatever happens to the connection, who waits polls again when his time is up; nothing is
lost but the moments until then.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self, TypeVar

import psycopg

from headrace import forking, statements
from headrace.errors import HeadraceError, Unavailable
from headrace.opening import usable
from headrace.running import run_async
from headrace.sessions import AsyncSession, is_cut
from headrace.statements import Statement

ARMING = 1.0  # seconds that `arm` waits for the connection, at most
ANSWER = 5.0  # seconds without a reply until the connection is taken to be dead
LINGER = 0.25  # seconds for which publishers still notify those who may want to wait again at once
PROBE = 1.0  # seconds for a notification to come through whatever is in between
# Seconds between two attempts to connect. Polls go on meanwhile, so the server is asked anyway; one connection more is little.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 3.0
# Of the wake-ups in a row after which nothing is found, the first few are heeded at once: another worker was faster. Then there is a pause
# before the next is, of so many seconds at first, twice as long each time, and no longer than the idle poll.
SPARED, SHORTEST = 5, 0.01
# A channel with more notifications than this in a second is not listened to for a while: to read them costs, too.
FLOOD, CALM = 5000, 10.0
AGAIN = 1.0  # seconds until it is tried again to be known to publishers, where an outsider was in the way
STEADY = 10.0  # a connection that lasted for so many seconds was a good one

logger = logging.getLogger("headrace")

T = TypeVar("T")
Key = tuple[str, str]


class Watch:
    """One who waits for work in a queue: he arms it, polls once more, waits, and disarms it when he has work.

    Anybody can notify. So wake-ups after which nothing is found come more and more seldom, in the end as seldom as
    the polls of one who is never woken: see `found`.
    """

    def __init__(self, wakeups: Wakeups, key: Key) -> None:
        self._wakeups = wakeups
        self._key = key
        self._woken = asyncio.Event()
        self._urgent = asyncio.Event()
        self._in_vain = 0  # wake-ups since something was last found
        self._looked_at = -math.inf

    async def arm(self) -> None:
        """From when this returns he is woken, if anybody can be; what came before is found by a poll."""
        self._woken.clear()
        self._urgent.clear()
        await self._wakeups._arm(self._key, self)

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109
        """Whether he was woken, since he armed it or was last woken; else the time is up. He looks then, in either case."""
        self._wakeups._try_again(self._key)
        try:
            async with asyncio.timeout(timeout):
                await self._woken.wait()
                await self._pause()
                self._in_vain += not self._urgent.is_set()
                return True
        except TimeoutError:
            if not self._woken.is_set():  # a quiet time
                self._in_vain = 0
            return False
        finally:
            self._woken.clear()
            self._urgent.clear()
            self._looked_at = _now()

    async def _pause(self) -> None:
        """Leave a notification unheeded for a while, if those before it were in vain."""
        if self._in_vain < SPARED:
            return
        until = self._looked_at + SHORTEST * 2.0 ** min(self._in_vain - SPARED, 30)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                await self._urgent.wait()

    def found(self) -> None:
        """There was work: whoever notifies next is heeded at once."""
        self._in_vain = 0

    def disarm(self) -> None:
        """He does not wait any more. Publishers are told a little later: he may be back at once."""
        self._wakeups._disarm(self._key, self)

    def wake(self) -> None:
        """At once."""
        self._urgent.set()
        self._woken.set()

    def notified(self) -> None:
        self._woken.set()


class _Bed:
    """A queue that is slept on."""

    def __init__(self) -> None:
        self.sleepers: set[Watch] = set()
        self.channel: str | None = None  # None: publishers do not know
        self.empty_since = 0.0
        self.left_until = -math.inf  # it is not made before
        self.settled = asyncio.Event()  # made, or not to be had: nobody need wait for it
        self._heard, self._heard_since = 0, -math.inf

    def wake(self) -> None:
        for watch in self.sleepers:
            watch.notified()

    def is_flooded(self, now: float) -> bool:
        """Whether the notification that has just come is one too many."""
        if now > self._heard_since + 1:
            self._heard, self._heard_since = 0, now
        self._heard += 1
        return self._heard == FLOOD


class Wakeups:
    """A connection that listens, for any number of watches in one event loop. It comes back by itself when it
    is lost. Where there is none, watches work by their timeouts: behind a transaction pooler
    (`prepare=False`, or found out) nobody can listen."""

    def __init__(self, dsn: str, *, prepare: bool = True) -> None:
        self._dsn = usable(dsn)
        self._prepare = prepare
        self._beds: dict[Key, _Bed] = {}
        self._channels: dict[str, _Bed] = {}
        self._working: bool | None = None  # None: not tried yet
        self._tried = asyncio.Event()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        forking.register(self)

    def after_fork(self) -> None:
        """Nobody listens here until it is opened anew: the task and its loop are the parent's."""
        Wakeups.__init__(self, self._dsn, prepare=self._prepare)

    async def open(self) -> None:
        """Never fails: PostgreSQL may be away, and come."""
        if self._prepare and self._task is None:
            self._task = asyncio.create_task(self._keep_connected(), name="headrace wake-ups")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._tried.wait(), ARMING)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def watch(self, namespace: str, queue: str) -> Watch:
        return Watch(self, (namespace, queue))

    @property
    def working(self) -> bool:
        """Whether anybody can be woken now."""
        return self._working is True

    async def _arm(self, key: Key, watch: Watch) -> None:
        bed = self._beds.setdefault(key, _Bed())
        bed.sleepers.add(watch)
        if self._working and bed.channel is None:
            bed.settled.clear()
            self._changed.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(bed.settled.wait(), ARMING)

    def _try_again(self, key: Key) -> None:
        """Let publishers know, where that was not possible: an outsider may be out of the way by now."""
        bed = self._beds.get(key)
        if self._working and bed is not None and bed.channel is None and bed.left_until <= _now():
            self._changed.set()

    def _disarm(self, key: Key, watch: Watch) -> None:
        bed = self._beds.get(key)
        if bed is not None:
            bed.sleepers.discard(watch)
            bed.empty_since = _now()
            self._changed.set()

    async def _keep_connected(self) -> None:
        now = asyncio.get_running_loop().time
        pause = FIRST_PAUSE
        while True:
            began = now()
            try:
                async with _connected(self._dsn, self._heard) as line:
                    await self._serve(line)
            except _PooledError:
                self._given_up()
                return
            except Exception as error:  # whatever it is: a hint is no reason to fail
                self._stopped(error)
            pause = FIRST_PAUSE if now() - began > STEADY else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1))

    async def _serve(self, line: _Line) -> None:
        """Keep the beds as they are wanted and wake who is notified, until the connection is lost."""
        await self._make_beds(line)
        self._started()
        while True:
            self._changed.clear()
            await self._make_beds(line)
            lingering = await self._strip_beds(line)
            await line.listen(self._changed, lingering)

    async def _make_beds(self, line: _Line) -> None:
        for key, bed in list(self._beds.items()):
            if bed.sleepers and bed.channel is None:
                if bed.left_until <= _now():
                    await self._make_bed(line, key, bed)
                bed.settled.set()

    async def _make_bed(self, line: _Line, key: Key, bed: _Bed) -> None:
        try:
            bed.channel = await line.ask(statements.fall_asleep(*key))
        except Unavailable:
            raise
        except HeadraceError:  # there is no such queue, as the poll will say
            bed.sleepers.clear()
            return
        if bed.channel is None:  # an outsider is in the way, and the engine tells who
            bed.left_until = _now() + AGAIN
        else:
            self._channels[bed.channel] = bed

    async def _strip_beds(self, line: _Line) -> float | None:
        """Wake up from what nobody sleeps on any more, or what is flooded; how long until there may be more of these."""
        now = _now()
        lingering = None
        for key, bed in list(self._beds.items()):
            left = bed.empty_since + LINGER - now
            is_left = bed.left_until > now
            if bed.sleepers and not is_left:
                continue
            if bed.channel is None:
                if not is_left:
                    del self._beds[key]
            elif left > 0 and not is_left:
                lingering = left if lingering is None else min(left, lingering)
            else:
                channel, bed.channel = bed.channel, None
                del self._channels[channel]
                await line.ask(statements.wake_up(channel))
        return lingering

    def _heard(self, channel: str) -> None:
        bed = self._channels.get(channel)
        if bed is None:
            return
        bed.wake()
        if bed.is_flooded(_now()):
            logger.warning(
                "more than %d notifications a second come on %s: work is polled for, for %.0f seconds",
                FLOOD,
                channel,
                CALM,
            )
            bed.left_until = _now() + CALM
            self._changed.set()

    def _started(self) -> None:
        if self._working is False:
            logger.info("wake-ups work again")
        self._working = True
        self._tried.set()
        for bed in self._beds.values():  # what happened meanwhile nobody was told of
            bed.wake()

    def _stopped(self, error: Exception) -> None:
        if self._working is not False:
            said = str(error).strip().partition("\n")[0] or type(error).__name__
            logger.warning("wake-ups do not work for now, work is polled for: %s", said)
        self._unmake_beds()

    def _given_up(self) -> None:
        logger.info("a transaction pooler is in between: no wake-ups, work is polled for")
        self._unmake_beds()

    def _unmake_beds(self) -> None:
        self._working = False
        self._tried.set()
        self._channels.clear()
        for bed in self._beds.values():
            bed.channel = None
            bed.settled.set()


def _now() -> float:
    return asyncio.get_running_loop().time()


class _PooledError(Exception):
    """Notifications do not reach us."""


class _Line:
    """A session that also hears what it is notified of while nothing is asked of it."""

    def __init__(self, session: AsyncSession, heard: Callable[[str], None]) -> None:
        self._session = session
        self._heard = heard
        self._lost: psycopg.Error | None = None
        session.add_notify_handler(lambda notify: heard(notify.channel))

    async def ask(self, statement: Statement[T]) -> T:
        asking = asyncio.create_task(run_async(self._session, statement, prepare=True))
        try:
            await asyncio.wait({asking}, timeout=ANSWER)
        finally:
            if not asking.done():
                self._hang_up()
                asking.cancel()
                await asyncio.wait({asking})
        if asking.cancelled():
            raise TimeoutError("PostgreSQL does not answer")
        return asking.result()

    def _hang_up(self) -> None:
        """At once: a server that has vanished would be waited for, first of all to cancel what it does."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._session.pgconn.socket)
        loop.remove_writer(self._session.pgconn.socket)
        self._session.pgconn.finish()

    async def listen(self, until: asyncio.Event, timeout: float | None) -> None:  # noqa: ASYNC109
        """Until this is set, or the time is up, or the connection is lost, which is raised."""
        loop, socket = asyncio.get_running_loop(), self._session.pgconn.socket
        loop.add_reader(socket, self._read, socket, until)
        try:
            self._read(socket, until)
            with suppress(TimeoutError):
                await asyncio.wait_for(until.wait(), timeout)
        finally:
            if self._lost is None:
                loop.remove_reader(socket)
        if self._lost is not None:
            raise self._lost

    def _read(self, socket: int, until: asyncio.Event) -> None:
        try:
            self._session.pgconn.consume_input()
            while is_cut(socket):  # to the end, which is an error
                self._session.pgconn.consume_input()
            while notify := self._session.pgconn.notifies():
                self._heard(notify.relname.decode())
        except psycopg.Error as error:
            # At once: the socket is closed, and the next one that is opened gets its number.
            asyncio.get_running_loop().remove_reader(socket)
            self._lost = error
            until.set()


@asynccontextmanager
async def _connected(dsn: str, heard: Callable[[str], None]) -> AsyncIterator[_Line]:
    async with await AsyncSession.connect(dsn, autocommit=True, prepare_threshold=0) as session:
        if await _is_pooled(session) and not await _is_reached(session, dsn):
            raise _PooledError
        # To wait is what this session is for.
        await session.execute("set idle_session_timeout = 0", prepare=False)
        yield _Line(session, heard)


async def _is_pooled(session: AsyncSession) -> bool:
    """Whether the one who answers is not the one we have connected to."""
    asked = await session.execute("select pg_catalog.pg_backend_pid()", prepare=False)
    return await asked.fetchone() != (session.info.backend_pid,)


async def _is_reached(session: AsyncSession, dsn: str) -> bool:
    """Whether somebody else's notification gets here while the session rests, as it does not if a pooler has
    lent it to others then."""
    channel, reached = f"headrace_probe_{secrets.token_hex(8)}", asyncio.Event()
    line = _Line(session, lambda heard: reached.set() if heard == channel else None)
    await session.execute(f"listen {channel}", prepare=False)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        await other.execute("select pg_catalog.pg_notify(%s, '')", [channel], prepare=False)
        await line.listen(reached, PROBE)
    await session.execute(f"unlisten {channel}", prepare=False)
    return reached.is_set()
