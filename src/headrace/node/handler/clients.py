"""The clients by which the contexts of handlers publish events and save progress."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg

from headrace.async_client import AsyncEventQueue
from headrace.client import EventQueue
from headrace.errors import NotRunning
from headrace.model import Claimed, Event, NewEvent
from headrace.node.handler.context import Means


class HandlerClients:
    """Publishes and saves for plain handlers, which call from threads, and for async ones.

    Plain and async handlers of one event may share a transaction. So either way may be given the
    connection of the other; the handler whose connection it is waits meanwhile. `plain` has no
    connections of its own: it works on those of handlers alone. `publisher`: the client of several
    shards, where `queue` is one of them.
    """

    def __init__(
        self,
        queue: AsyncEventQueue,
        plain: EventQueue,
        loop: asyncio.AbstractEventLoop,
        publisher: AsyncEventQueue | None,
    ) -> None:
        self._queue = queue
        self._publisher = publisher
        self._plain = plain
        self._loop = loop
        self._process = os.getpid()

    def means(
        self, lease: float, renewed_at: Callable[[int], float], producer: str
    ) -> tuple[Means, Means]:
        """The means of plain handlers' contexts, and those of async handlers' contexts."""
        return (
            Means(lease, renewed_at, self.publish, self.save, producer),
            Means(lease, renewed_at, self.publish_async, self.save_async, producer),
        )

    def publish(self, event: NewEvent, *, connection: Any, enforce: bool) -> Event:
        self._check_process()
        plain, loop = self._plain, self._loop
        if connection is None or isinstance(connection, psycopg.AsyncConnection):
            published = self.publish_async(event, connection=connection, enforce=enforce)
            return asyncio.run_coroutine_threadsafe(published, loop).result()
        return plain.run(plain.verbs.publish_event(event, enforce), connection)

    async def publish_async(self, event: NewEvent, *, connection: Any, enforce: bool) -> Event:
        queue = self._queue
        if isinstance(connection, psycopg.Connection):
            joining = partial(self.publish, connection=connection, enforce=enforce)
            return await asyncio.to_thread(joining, event)
        enforced = enforce or connection is None
        if connection is None and self._publisher is not None:
            return await self._publisher.publish(event, enforce=enforced)
        return await queue.run(queue.verbs.publish_event(event, enforced), connection)

    def save(self, claimed: Claimed, progress: Any, connection: Any) -> None:
        self._check_process()
        if connection is None or isinstance(connection, psycopg.AsyncConnection):
            saved = self.save_async(claimed, progress, connection)
            asyncio.run_coroutine_threadsafe(saved, self._loop).result()
        else:
            self._plain.save_progress(claimed, progress, connection=connection)

    async def save_async(self, claimed: Claimed, progress: Any, connection: Any) -> None:
        if isinstance(connection, psycopg.Connection):
            await asyncio.to_thread(self.save, claimed, progress, connection)
        else:
            await self._queue.save_progress(claimed, progress, connection=connection)

    def _check_process(self) -> None:
        """A process that a handler has forked has no event loop of the node, and would wait for
        ever."""
        if os.getpid() != self._process:
            raise NotRunning(
                "the context of a handler works in the process of its node only, and this "
                "process was forked from it: use connect() here"
            )
