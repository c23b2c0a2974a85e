"""The client for asyncio: it connects, and borrows every verb of the engine. client.py has the same
without the awaiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from headrace.driver.async_pool import AsyncSessions
from headrace.driver.async_session import AsyncSession
from headrace.driver.borrow import Borrows
from headrace.driver.connect import SETTLE, open_source_soon
from headrace.driver.runner import AsyncPool as Pool
from headrace.driver.runner import AsyncRunner, alone_over
from headrace.driver.session_state import BOUND
from headrace.engine import transfer
from headrace.engine.arguments import time_limit
from headrace.engine.caller import Connection
from headrace.engine.state import Replay
from headrace.engine.transfer import File
from headrace.engine.verbs import Verbs, borrows
from headrace.model import AnyClaim, Duration, Event, Extended, Imported


def connect_async(
    dsn: str | None = None,
    *,
    namespace: str = "default",
    queue: str = "main",
    data: str | Path | None = None,
    migrate: bool | None = None,
    prepare: bool = True,
    pool_size: int = 4,
    worker: str | None = None,
    timeout: Duration = BOUND,
) -> Opening:
    """Open a queue as `connect` does: `await` it, or `async with` it to have it closed at the
    end."""
    bound = time_limit(timeout)

    async def open() -> AsyncEventQueue:
        async with AsyncExitStack() as opened:
            source = await open_source_soon(
                dsn, data, migrate, namespace, prepare=prepare, bound=bound
            )
            opened.push_async_callback(asyncio.to_thread, source.close)
            pool = sessions(
                source.dsn, pool_size, prepare=source.prepare, join=source.join, bound=bound
            )
            await opened.enter_async_context(pool)
            # A program that ends at once must not leave a connection half made.
            await pool.wait(bound)
            made = AsyncEventQueue(
                pool, namespace=namespace, queue=queue, worker=worker, prepare=source.prepare
            )
            made._owned = opened.pop_all()
            return made

    return Opening(open)


def sessions(
    dsn: str,
    size: int,
    *,
    prepare: bool,
    join: Callable[[], object] | None = None,
    bound: float = BOUND,
) -> AsyncSessions:
    """A pool of connections of our own, to be opened."""
    return AsyncSessions(
        dsn,
        join=join,
        bound=bound,
        kwargs={"autocommit": True, "prepare_threshold": 0 if prepare else None},
        configure=_settle if prepare else None,
        min_size=1,
        max_size=size,
        name="headrace",
        open=False,
    )


class Opening:
    """A queue that is about to be opened."""

    def __init__(self, open: Callable[[], Coroutine[Any, Any, AsyncEventQueue]]) -> None:
        self._open = open
        self._opened: AsyncEventQueue | None = None

    def __await__(self) -> Generator[Any, None, AsyncEventQueue]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncEventQueue:
        self._opened = await self
        return self._opened

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


async def _settle(session: AsyncSession) -> None:
    await session.command(SETTLE)


class AsyncEventQueue(AsyncRunner, Borrows):
    """A queue in a namespace, over a pool or over a connection of the caller's.

    Over a pool, every call is a transaction of its own, committed when it returns, and the client
    may be used by many threads. Over a connection, a call takes part in whatever transaction that
    is in; it may be psycopg's or another library's (docs/transactions.md), as may be those given as
    `connection`.

    For the other parts of Headrace: `verbs` are the calls on this queue, and `run` runs one of
    them.
    """

    def __init__(
        self,
        pool_or_connection: Pool | Connection,
        *,
        namespace: str = "default",
        queue: str = "main",
        worker: str | None = None,
        prepare: bool = True,
    ) -> None:
        super().__init__(pool_or_connection, prepare=prepare)
        self.verbs = Verbs(namespace, queue, worker, alone_over(pool_or_connection))
        self._owned = AsyncExitStack()

    # Of two kinds of arguments: a borrowed verb would have the type of one of them.
    @overload
    async def extend(self, claimed: AnyClaim, lease: Duration | None = None) -> Extended: ...
    @overload
    async def extend(
        self, claimed: Sequence[AnyClaim], lease: Duration | None = None
    ) -> list[Extended]: ...
    @borrows(Verbs.extend)  # type: ignore[misc]
    async def extend(self, *given: Any, **named: Any) -> Any:
        return await self.run(self.verbs.extend(*given, **named))

    @borrows(Verbs.import_state)
    async def import_state(self, file: File, **named: Any) -> Imported:
        with ExitStack() as stack:
            contents = await asyncio.to_thread(stack.enter_context, transfer.opened(file))
            return await self.run(self.verbs.import_state(contents, **named))

    @borrows(Verbs.replay, AsyncIterator[Event])
    def replay(self, **asked: Any) -> AsyncIterator[Event]:
        return self._replayed(self.verbs.replay(**asked))

    async def _replayed(self, replay: Replay) -> AsyncIterator[Event]:
        while not replay.is_over:
            for event in await self.run(self.verbs.replay_on(replay)):
                yield event
            if replay.pause:
                await asyncio.sleep(replay.pause)

    @borrows(Verbs.export_state, AsyncIterator[bytes])
    async def export_state(
        self, *, move: bool = False, actor: str | None = None
    ) -> AsyncIterator[bytes]:
        if move:
            await self.take_turns(self.verbs.fence(actor))
        export = self.verbs.export_state(move=move)
        async with self.snapshot() as run:
            while not export.is_over:
                yield export.line(await run(export.step()))

    async def close(self) -> None:
        """Close what `connect` has opened; a pool or a connection of the caller's stays open."""
        await self._owned.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'/'.join(self.verbs.names)}>"
