"""The clients of all namespaces and queues, over the same connections."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from headrace.async_client import AsyncEventQueue
from headrace.explaining import NoConnection, NotStored
from headrace.model import Queue
from headrace.opening import SETTLE
from headrace.pools import AsyncSessions
from headrace.readiness import Readiness
from headrace.running import run_async
from headrace.server.bulkheads import Crowd, SharedSessions
from headrace.sessions import AsyncSession
from headrace.statements import Statement, max_payload

T = TypeVar("T")

CLIENTS = 1000  # that are kept; the least used one is forgotten, and with it only hints
SETTINGS_LAST = 2.0  # seconds
PATIENCE = 2.0  # seconds that a request waits for a connection

Lane: TypeAlias = Literal["work", "finish", "look", "upkeep"]
"""Which connections something goes by: publishes, claims and changes; the ends of claims and heartbeats; look-ups;
upkeep. None of them can take those of another."""

# A statement that takes longer than this is given up: somebody holds a lock, and the client should know.
# Not behind a transaction pooler, where a session's settings are everybody's.
LIMITS = ("set statement_timeout = '20s'", "set lock_timeout = '2s'")
LOOK_SECONDS = 10  # after which a look-up is cut off


class Directory:
    """Gives the client of a queue. Each lane has a pool: when all connections of one are busy, the others go on."""

    def __init__(
        self,
        pools: Mapping[Lane, AsyncSessions],
        *,
        prepare: bool,
        readiness: Readiness,
    ) -> None:
        self.readiness = readiness
        self.pools = pools
        self._prepare = prepare
        self._clients: OrderedDict[tuple[str, str, Lane], AsyncEventQueue] = OrderedDict()
        self._max_payload: tuple[float, int | None] = (0.0, None)
        self._settings: dict[tuple[str, str], tuple[float, Queue]] = {}

    def of(self, namespace: str, queue: str, *, lane: Lane = "work") -> AsyncEventQueue:
        """The client of a queue, which need not exist: the first call will tell."""
        key = (namespace, queue, lane)
        known = self._clients.get(key)
        if known is not None:
            self._clients.move_to_end(key)
            return known
        made = AsyncEventQueue(
            self.pools[lane],
            namespace=namespace,
            queue=queue,
            worker="http",
            prepare=self._prepare,
        )
        self._clients[key] = made
        if len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        return made

    async def settings(self, namespace: str, queue: str) -> Queue:
        """A queue, as it was a moment ago: a publisher is told by it what becomes of his event, and need not wait."""
        key = (namespace, queue)
        now = time.monotonic()
        until, known = self._settings.get(key, (0.0, None))
        if known is not None and now < until:
            return known
        if known is not None:  # by one of those who find it old; the others go on with it
            self._settings[key] = (now + SETTINGS_LAST, known)
        found = await self.of(namespace, queue).queue()
        if len(self._settings) >= CLIENTS:
            self._settings.clear()
        self._settings[key] = (now + SETTINGS_LAST, found)
        return found

    async def max_payload(self) -> int:
        """How many bytes a payload may have, as it was a moment ago."""
        now = time.monotonic()
        until, known = self._max_payload
        if known is None or now >= until:
            self._max_payload = (now + SETTINGS_LAST, known)  # the others go on with it
            known = await self.ask(max_payload())
            self._max_payload = (now + SETTINGS_LAST, known)
        return known

    async def why(self, error: NoConnection) -> NotStored:
        """No connection was free in time: because all of them are busy, or because PostgreSQL is away, or commits
        nothing, so that none becomes free."""
        trouble = await self.readiness.trouble()
        return error if trouble is None else NotStored(trouble.sentence)

    async def ask(self, statement: Statement[T], *, lane: Lane = "work") -> T:
        """Run one statement, for which there is no call of a client."""
        pool = self.pools[lane]
        session = await pool.getconn()
        try:
            return await run_async(session, statement, prepare=self._prepare)
        finally:
            await pool.putconn(session)


@asynccontextmanager
async def open_directory(
    dsn: str, *, connections: int = 10, prepare: bool = True
) -> AsyncIterator[Directory]:
    """`prepare=False` is for a transaction pooler in between."""

    crowd = Crowd()

    def pool(lane: Lane, size: int) -> AsyncSessions:
        kind = AsyncSessions if lane == "upkeep" else partial(SharedSessions, crowd=crowd)
        return kind(
            dsn,
            kwargs={"autocommit": True, "prepare_threshold": 0 if prepare else None},
            configure=(_settle_look_up if lane == "look" else _settle) if prepare else None,
            min_size=1,
            max_size=size,
            timeout=PATIENCE,
            name=f"headrace-{lane}",
            open=False,
        )

    async with AsyncExitStack() as stack:
        pools = {
            lane: await stack.enter_async_context(pool(lane, size))
            for lane, size in sizes(connections).items()
        }
        readiness = Readiness(dsn)
        stack.push_async_callback(readiness.close)
        yield Directory(pools, prepare=prepare, readiness=readiness)


def sizes(connections: int) -> dict[Lane, int]:
    """How many connections each lane has, of so many; four are the fewest."""
    finish = 2 if connections >= 6 else 1
    look = max(1, (connections - finish - 1) // 2)
    work = max(1, connections - finish - look - 1)
    return {"work": work, "finish": finish, "look": look, "upkeep": 1}


async def _settle(session: AsyncSession) -> None:
    await session.command(SETTLE)
    for setting in LIMITS:
        await session.command(setting.encode())


async def _settle_look_up(session: AsyncSession) -> None:
    await _settle(session)
    await session.command(b"set statement_timeout = '%ds'" % LOOK_SECONDS)
