"""The clients of all namespaces and queues, over the same connections."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from headrace.async_client import AsyncEventQueue
from headrace.driver.async_batcher import AsyncBatcher
from headrace.driver.async_pool import AsyncSessions
from headrace.driver.async_session import AsyncSession
from headrace.driver.connect import SETTLE
from headrace.driver.explain import NotStored
from headrace.driver.readiness import Readiness
from headrace.driver.run import run_async
from headrace.driver.runner import AsyncRunner, async_batcher_over
from headrace.engine.database import Shard, shard
from headrace.engine.publish import max_payload
from headrace.engine.shard_routes import Gathered
from headrace.engine.statement import Batchable, Statement, Steps, ask
from headrace.engine.verbs import Verbs
from headrace.model import Claimed, Event, NewEvent, Queue
from headrace.server.bulkheads import Crowd, SharedSessions, charged_to_namespace

T = TypeVar("T")

CLIENTS = 1000  # that are kept; the least recently used is dropped, and with it only hints
SETTINGS_LAST = 2.0  # seconds
PATIENCE = 2.0  # seconds that a request waits for a connection

Lane: TypeAlias = Literal["work", "finish", "look", "upkeep"]
"""Which connections a statement uses. work: publish, claim, change; finish: finish claims and
heartbeats; look: queries; upkeep. No lane can use the connections of another."""

# A longer statement is cancelled: another transaction holds a lock, and the client should know.
# Not behind a transaction pooler, where all clients share the settings of a session.
LIMITS = ("set statement_timeout = '20s'", "set lock_timeout = '2s'")
LOOK_SECONDS = 10  # after which a query is cancelled


class Look(NamedTuple):
    """A claim of a worker. Claims of one event that look for the same go together."""

    verbs: Verbs
    worker: str
    limit: int
    types: list[str] | None
    tags: list[str] | None
    all_tags: bool
    lease: float | None

    @property
    def batchable(self) -> Batchable:
        filter = (tuple(self.types or ()), tuple(self.tags or ()), self.all_tags)
        kind = ("claim", self.verbs.queue_name, filter, self.lease)
        return Batchable(self.verbs.namespace, kind, self, 0, LookForAll)

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            "types": self.types,
            "tags": self.tags,
            "all_tags": self.all_tags,
            "max_events": self.limit,
            "lease": self.lease,
            "each": True,
            "worker": self.worker,
        }

    def steps(self) -> Steps[list[Claimed]]:
        return self.verbs.poll(**self.arguments)

    def soon(self, verbs: Verbs) -> float | None:
        return verbs.memory.hints(self.types, self.tags, self.all_tags).look_in


class LookForAll(NamedTuple):
    looks: Sequence[Look]

    def steps(self) -> Steps[list[list[Claimed]]]:
        one = self.looks[0]
        found = yield from one.verbs.poll_for(
            [look.worker for look in self.looks],
            types=one.types,
            tags=one.tags,
            all_tags=one.all_tags,
            lease=one.lease,
        )
        return [[] if claimed is None else [claimed] for claimed in found]


class Directory:
    """Returns the client of a queue. Each lane has a pool: when all connections of one are busy,
    the others still work."""

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
        self._runners = {lane: _runner(pool, prepare) for lane, pool in pools.items()}
        self._looks = AsyncBatcher(
            lambda look: self.run(look.steps()), lambda: pools["work"].bound, within=_charged
        )
        self._clients: OrderedDict[tuple[str, str, Lane], AsyncEventQueue] = OrderedDict()
        self._max_payload: tuple[float, int | None] = (0.0, None)
        self._settings: dict[tuple[str, str], tuple[float, Queue]] = {}
        self._changes = 0

    def of(self, namespace: str, queue: str, *, lane: Lane = "work") -> AsyncEventQueue:
        """The client of a queue, which need not exist: the first call would raise."""
        key = (namespace, queue, lane)
        known = self._clients.get(key)
        if known is not None:
            self._clients.move_to_end(key)
            return known
        made = self._clients[key] = self._made(namespace, queue, lane)
        if len(self._clients) > CLIENTS:
            self._clients.popitem(last=False)
        return made

    def _made(self, namespace: str, queue: str, lane: Lane) -> AsyncEventQueue:
        return AsyncEventQueue(
            self.pools[lane],
            namespace=namespace,
            queue=queue,
            worker="http",
            prepare=self._prepare,
        )

    over_shards = False

    async def publish(self, namespace: str, event: NewEvent) -> Event:
        """Publish an event wherever it belongs."""
        return await self.run(self.of(namespace, "main").verbs.publish_event(event, enforce=True))

    @property
    def parts(self) -> Sequence[Directory]:
        """One for each database."""
        return [self]

    @property
    def missing(self) -> tuple[str, ...]:
        """Of several shards, those that do not answer."""
        return ()

    def at(self, id: int) -> Directory:
        """Of the database that has an event."""
        return self

    async def everywhere(
        self, statement: Statement[T], merge: Callable[[Gathered], T], *, lane: Lane = "work"
    ) -> T:
        """Run one statement in all databases."""
        return await self.ask(statement, lane=lane)

    async def change_all(self, statement: Statement[Any]) -> None:
        """Run one statement in all databases, or fail."""
        await self.ask(statement)

    async def settings(self, namespace: str, queue: str) -> Queue:
        """A queue, as it was a moment ago: good enough to answer a publisher, who need not wait."""
        key = (namespace, queue)
        now = time.monotonic()
        until, known = self._settings.get(key, (0.0, None))
        if known is not None and now < until:
            return known
        if known is not None:  # one request reads it anew; the others use the old one
            self._settings[key] = (now + SETTINGS_LAST, known)
        changes = self._changes
        found = await self.of(namespace, queue).queue()
        if len(self._settings) >= CLIENTS:
            self._settings.clear()
        if changes == self._changes:  # else it may be older than the change
            self._settings[key] = (now + SETTINGS_LAST, found)
        return found

    def forget_settings(self, namespace: str, queue: str) -> None:
        """A queue was changed: later requests read it anew."""
        self._changes += 1
        self._settings.pop((namespace, queue), None)

    async def max_payload(self) -> int:
        """The maximum size of a payload in bytes, as it was a moment ago."""
        now = time.monotonic()
        until, known = self._max_payload
        if known is None or now >= until:
            self._max_payload = (now + SETTINGS_LAST, known)  # other requests use the old one
            known = await self.ask(max_payload())
            self._max_payload = (now + SETTINGS_LAST, known)
        return known

    async def why(self, error: Exception) -> Exception:
        """Why no connection, or no lock, was free in time: all of them are busy, or PostgreSQL is
        away or commits nothing, so that none becomes free."""
        trouble = await self.readiness.trouble_lately()
        return error if trouble is None else NotStored(trouble.sentence)

    async def ask(self, statement: Statement[T], *, lane: Lane = "work") -> T:
        """Run one statement, for which there is no verb of a client."""
        return await self._runners[lane].run(ask(statement))

    async def claim(self, look: Look) -> list[Claimed]:
        """The events that a worker gets."""
        if look.limit > 1:
            return await self.run(look.steps())
        claimed: list[Claimed] = await self._looks.ask(look)
        return claimed

    def look_in(self, look: Look) -> float | None:
        """Seconds after which a rate lets the next event start, as far as the last claim knows."""
        return look.soon(look.verbs)

    async def run(self, steps: Steps[T], *, lane: Lane = "work") -> T:
        """Run a call."""
        return await self._runners[lane].run(steps)


def _runner(pool: AsyncSessions, prepare: bool) -> AsyncRunner:
    """Statements of requests that come at the same moment go together, also those that may wait for
    another session's transaction: LIMITS ends that."""

    batcher = async_batcher_over(pool, prepare, may_wait=True, within=_charged)
    return AsyncRunner(pool, prepare=prepare, batcher=batcher)


def _charged(batchable: Batchable) -> AbstractContextManager[None]:
    return charged_to_namespace(batchable.namespace)


@asynccontextmanager
async def open_directory(
    dsn: str,
    *,
    connections: int = 10,
    prepare: bool = True,
    check: Callable[[Shard], None] | None = None,
) -> AsyncIterator[Directory]:
    """`prepare=False` is for a transaction pooler in between. `check` refuses a connection to
    another shard."""

    crowd = Crowd()

    def configure(lane: Lane) -> Configure | None:
        return (_settle_look_up if lane == "look" else _settle) if prepare else None

    def pool(lane: Lane, size: int) -> AsyncSessions:
        kind = AsyncSessions if lane == "upkeep" else partial(SharedSessions, crowd=crowd)
        return kind(
            dsn,
            kwargs={"autocommit": True, "prepare_threshold": 0 if prepare else None},
            configure=_checked(configure(lane), check) if check else configure(lane),
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


Configure: TypeAlias = Callable[[AsyncSession], Coroutine[Any, Any, None]]


def _checked(configure: Configure | None, check: Callable[[Shard], None]) -> Configure:
    async def settle(session: AsyncSession) -> None:
        if configure is not None:
            await configure(session)
        check(await run_async(session, shard(), prepare=False))

    return settle


async def _settle(session: AsyncSession) -> None:
    await session.command(SETTLE)
    for setting in LIMITS:
        await session.command(setting.encode())


async def _settle_look_up(session: AsyncSession) -> None:
    await _settle(session)
    await session.command(b"set statement_timeout = '%ds'" % LOOK_SECONDS)
