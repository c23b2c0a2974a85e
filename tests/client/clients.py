"""Both clients behind one face, so that every test of what they do is written once."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

import psycopg
from anyio.from_thread import BlockingPortal
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import headrace
from tests.database import Database

T = TypeVar("T")


class Client:
    """Opens queues and connections of one kind; `call` calls their methods, awaiting if need be."""

    kind = "plain"

    def __init__(self, db: Database) -> None:
        self.db = db
        self._close: list[Callable[[], Any]] = []

    def queue(self, **options: Any) -> Any:
        return self.queue_at(self.db.dsn, **options)

    def queue_at(self, dsn: str, **options: Any) -> Any:
        return self._opened(headrace.connect(dsn, **options))

    def unwrapped(self, queue: Any) -> Any:
        return queue

    def queue_on(self, source: Any, **options: Any) -> Any:
        return headrace.EventQueue(source, **options)

    def connection(self, **options: Any) -> Any:
        connection = psycopg.connect(self.db.first_dsn, **options)
        return self._opened(connection)

    def pool(self, **options: Any) -> Any:
        return self._opened(
            ConnectionPool(self.db.first_dsn, min_size=1, max_size=2, open=True, **options)
        )

    def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return method(*arguments, **options)

    def within(self, context: Any) -> AbstractContextManager[Any]:
        """A context manager, to be entered by `with` whatever its kind."""
        return context

    def rows(self, connection: Any, query: str, **options: Any) -> list[Any]:
        cursor = self.call(connection.execute, query, **options)
        return self.call(cursor.fetchall) if cursor.description else []

    def close(self) -> None:
        for close in reversed(self._close):
            self.call(close)

    def _opened(self, opened: T) -> T:
        self._close.append(opened.close)  # type: ignore[attr-defined]
        return opened


class AsyncClient(Client):
    """The same over asyncio, in a loop of its own thread."""

    kind = "async"

    def __init__(self, db: Database, portal: BlockingPortal) -> None:
        super().__init__(db)
        self._portal = portal

    def queue_at(self, dsn: str, **options: Any) -> Any:
        async def connect() -> headrace.AsyncEventQueue:
            return await headrace.connect_async(dsn, **options)

        queue = self._portal.call(connect)
        self._close.append(queue.close)
        return Plain(self, queue)

    def unwrapped(self, queue: Any) -> Any:
        return queue._queue

    def queue_on(self, source: Any, **options: Any) -> Any:
        return Plain(self, headrace.AsyncEventQueue(source, **options))

    def connection(self, **options: Any) -> Any:
        connect = psycopg.AsyncConnection.connect
        return self._opened(self._portal.call(partial(connect, self.db.first_dsn, **options)))

    def pool(self, **options: Any) -> Any:
        async def connect() -> AsyncConnectionPool:
            pool = AsyncConnectionPool(
                self.db.first_dsn, min_size=1, max_size=2, open=False, **options
            )
            await pool.open()
            return pool

        return self._opened(self._portal.call(connect))

    def call(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        told = self._portal.call(partial(method, *arguments, **options))
        if isinstance(told, psycopg.AsyncCursor) or not isinstance(told, AsyncIterator):
            return told
        return self._each(told)

    def _each(self, told: AsyncIterator[Any]) -> Iterator[Any]:
        async def following() -> Any:
            return await anext(told, None)

        return iter(partial(self._portal.call, following), None)

    def within(self, context: Any) -> AbstractContextManager[Any]:
        return self._portal.wrap_async_context_manager(context)


class Plain:
    """An AsyncEventQueue whose methods do not have to be awaited."""

    def __init__(self, client: AsyncClient, queue: headrace.AsyncEventQueue) -> None:
        self._client = client
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._queue, name)
        return partial(self._client.call, found) if callable(found) else found
