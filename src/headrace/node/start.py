"""Starts a node: finds its database, opens its connections, and puts its service to work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from headrace.async_client import (
    AsyncEventQueue,
    AsyncShardedQueue,
    checked,
    connect_async,
    sessions,
)
from headrace.driver.async_pool import AsyncSessions
from headrace.driver.connect import Source, open_source_soon, several, single
from headrace.driver.listen import Wakeups
from headrace.driver.patience import Outage
from headrace.driver.readiness import Readiness
from headrace.engine.database import Shard
from headrace.node.claim.consumer import LARGEST
from headrace.node.handler.registry import Handlers
from headrace.node.lifespan import Lifespan
from headrace.node.run.threads import Threads
from headrace.node.run.transaction import Pools
from headrace.node.service import Service
from headrace.node.settings import DEFAULT_LEASE, Settings
from headrace.node.shards import Services
from headrace.node.share import Share
from headrace.telemetry.current import node_name


async def start(
    settings: Settings, handlers: Handlers, lifespan: Lifespan, grace: float
) -> Service | Services:
    """A service that handles events from now on; or one for each of several shards. Leaves nothing
    open if it cannot start."""
    named = node_name.set(settings.node_id)  # for all tasks and threads that start from here
    try:
        if several(settings.dsn, settings.data) is None:
            one = replace(settings, dsn=single(settings.dsn))
            return await _start_one(one, handlers, grace, Share(settings), lifespan=lifespan)
        queue = await _client_of_all(settings)
        services = Services(settings, handlers, lifespan, grace, queue, _start_one)
        try:
            await services.start()
        except BaseException:
            await services.stop(0)
            raise
        return services
    finally:
        node_name.reset(named)


async def _client_of_all(s: Settings) -> AsyncShardedQueue:
    opened = await connect_async(
        s.dsn,
        namespace=s.namespace,
        queue=s.queue,
        migrate=s.migrate,
        prepare=s.prepare,
        timeout=s.timeout,
        codec=s.codec,
    )
    assert isinstance(opened, AsyncShardedQueue)
    return opened


async def _start_one(
    settings: Settings,
    handlers: Handlers,
    grace: float,
    share: Share,
    check: Callable[[Shard], None] | None = None,
    lifespan: Lifespan | None = None,
) -> Service:
    connections = Connections(settings, check)
    try:
        # One for each lane and some for what handlers publish.
        await connections.open(len(handlers.lanes()) + 4)
        if lifespan is not None:
            connections.opened.push_async_callback(lifespan.stop)
            await lifespan.start(connections.queue, connections.threads)
        service = Service(connections, handlers, grace, share, lifespan)
        await service.start()
    except BaseException:
        await connections.opened.aclose()
        raise
    return service


class Connections:
    """The connections of a node, its threads, and what the database says about its queue."""

    queue: AsyncEventQueue
    """For claims, and for what handlers publish."""
    ends: AsyncEventQueue
    """For the ends of attempts, which must never wait for claims or publishers."""
    pools: Pools
    threads: Threads
    readiness: Readiness
    wakeups: Wakeups
    dsn: str

    def __init__(self, settings: Settings, check: Callable[[Shard], None] | None) -> None:
        self.settings = settings
        self._check = check
        """Refuses a connection to another shard than this one."""
        self.opened = AsyncExitStack()
        """Closes all of it, the last opened first."""
        self.outage = Outage(settings.node_id)
        self.lease = settings.lease or DEFAULT_LEASE
        self.idle = 0.0  # seconds
        self.largest = LARGEST  # events in a claim
        self._clients: list[AsyncSessions] = []

    async def open(self, size: int) -> None:
        s, opened = self.settings, self.opened
        source = await self._source()
        self.dsn = source.dsn
        s = self.settings = replace(s, prepare=source.prepare)
        self.queue = await self._client(size)
        self.ends = await self._client(1)
        info = await self.queue.queue()
        self.idle = info.processing_interval.total_seconds() if s.idle is None else s.idle
        self.largest = info.batch_size or LARGEST
        self.lease = s.lease or info.lease or DEFAULT_LEASE
        self.pools = Pools(source.dsn, s.connections, prepare=s.prepare, bound=s.timeout)
        opened.push_async_callback(self.pools.close)
        self.threads = Threads(f"headrace {s.node_id}")
        opened.callback(self.threads.close)
        self.readiness = Readiness(source.dsn)
        opened.push_async_callback(self.readiness.close)
        self.wakeups = Wakeups(source.dsn, prepare=s.prepare, outage=self.outage)
        await opened.enter_async_context(self.wakeups)

    async def _source(self) -> Source:
        s = self.settings
        source = await open_source_soon(
            single(s.dsn), s.data, s.migrate, s.namespace, prepare=s.prepare, bound=s.timeout
        )
        self.opened.push_async_callback(asyncio.to_thread, source.close)
        return source

    async def _client(self, size: int) -> AsyncEventQueue:
        s = self.settings
        configure = None if self._check is None else checked(s.prepare, self._check)
        pool = sessions(self.dsn, size, prepare=s.prepare, bound=s.timeout, configure=configure)
        await self.opened.enter_async_context(pool)
        pool.connected = partial(self.outage.connected, pool)
        self._clients.append(pool)
        return AsyncEventQueue(
            pool, namespace=s.namespace, queue=s.queue, prepare=s.prepare, codec=s.codec
        )

    async def hang_up(self, seconds: float) -> None:
        """Close all connections at the same time: a server that does not answer delays each of
        them."""
        await asyncio.gather(
            *(pool.close(seconds) for pool in self._clients),
            self.pools.close(),
            self.wakeups.close(),
            _within(seconds, self.readiness.close()),
            return_exceptions=True,
        )


async def _within(seconds: float, closing: Any) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(closing, seconds)
