"""The client for asyncio: it connects, and borrows every verb of the engine. client.py has the same
without the awaiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from headrace.driver.async_pool import AsyncSessions
from headrace.driver.async_session import AsyncSession
from headrace.driver.borrow import Borrows
from headrace.driver.connect import SETTLE, open_source_soon, several, single
from headrace.driver.run import run_async
from headrace.driver.runner import AsyncPool as Pool
from headrace.driver.runner import AsyncRunner, alone_over
from headrace.driver.servers import Terms, open_server_soon, terms
from headrace.driver.session_state import BOUND
from headrace.driver.shards import (
    LOOK_EVERY,
    NO_FILES,
    PATIENCE,
    AsyncShards,
    Members,
    View,
    borrow_all,
)
from headrace.engine import transfer
from headrace.engine.arguments import time_limit
from headrace.engine.caller import Connection
from headrace.engine.database import Shard
from headrace.engine.database import shard as its_shard
from headrace.engine.shard_pages import replays
from headrace.engine.shard_routes import by_claim
from headrace.engine.state import Replay
from headrace.engine.transfer import File
from headrace.engine.verbs import Verbs, borrows
from headrace.errors import InvalidInput
from headrace.model import AnyClaim, Claimed, DeadLetter, Duration, Event, Extended, Imported
from headrace.model.codec import Codec, Codecs


def connect_async(
    dsn: str | Sequence[str] | None = None,
    *,
    namespace: str = "default",
    queue: str = "main",
    data: str | Path | None = None,
    migrate: bool | None = None,
    prepare: bool = True,
    pool_size: int = 4,
    worker: str | None = None,
    timeout: Duration = BOUND,
    codec: Codec | Sequence[Codec] | None = None,
) -> Opening:
    """Open a queue as `connect` does: `await` it, or `async with` it to have it closed at the
    end."""
    bound = time_limit(timeout)

    async def open() -> AsyncEventQueue:
        dsns = several(dsn, data)
        if dsns is not None:
            sharded = AsyncShardedQueue(
                dsns,
                terms(
                    data,
                    migrate,
                    namespace=namespace,
                    worker=worker,
                    prepare=prepare,
                    pool_size=pool_size,
                    bound=bound,
                    codec=codec,
                ),
                queue,
            )
            await sharded.open()
            return sharded
        async with AsyncExitStack() as opened:
            source = await open_source_soon(
                single(dsn), data, migrate, namespace, prepare=prepare, bound=bound
            )
            opened.push_async_callback(asyncio.to_thread, source.close)
            pool = sessions(
                source.dsn, pool_size, prepare=source.prepare, join=source.join, bound=bound
            )
            await opened.enter_async_context(pool)
            # A program that ends at once must not leave a connection half made.
            await pool.wait(bound)
            made = AsyncEventQueue(
                pool,
                namespace=namespace,
                queue=queue,
                worker=worker,
                prepare=source.prepare,
                codec=codec,
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
    configure: Callable[[AsyncSession], Coroutine[Any, Any, None]] | None = None,
    **options: Any,
) -> AsyncSessions:
    """A pool of connections of our own, to be opened."""
    return AsyncSessions(
        dsn,
        join=join,
        bound=bound,
        kwargs={"autocommit": True, "prepare_threshold": 0 if prepare else None},
        configure=configure or (_settle if prepare else None),
        min_size=1,
        max_size=size,
        name="headrace",
        open=False,
        **options,
    )


def checked(
    prepare: bool, check: Callable[[Shard], None]
) -> Callable[[AsyncSession], Coroutine[Any, Any, None]]:
    """Settles new connections, and refuses those to another shard: `check` raises."""

    async def configure(session: AsyncSession) -> None:
        if prepare:
            await _settle(session)
        check(await run_async(session, its_shard(), prepare=False))

    return configure


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
        codec: Codec | Sequence[Codec] | None = None,
    ) -> None:
        super().__init__(pool_or_connection, prepare=prepare)
        alone = alone_over(pool_or_connection)
        self.verbs = Verbs(namespace, queue, worker, alone, Codecs(codec))
        self._owned = AsyncExitStack()

    def decode(self, event: Event | Claimed | DeadLetter) -> Any:
        """The payload of an event as it was published: what is read or claimed has it as it is
        stored. InvalidPayload: the codec that it names is not one of this client."""
        return self.verbs.codecs.payload(event)

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


class AsyncShardedQueue(AsyncShards, AsyncEventQueue):
    """A queue over several shards: each verb finds its shards by the list in driver/borrow.py."""

    def __init__(self, dsns: Sequence[str], terms: Terms, queue: str) -> None:
        self.verbs = Verbs(terms.namespace, queue, terms.worker, codecs=Codecs(terms.codec))
        self._owned = AsyncExitStack()
        self._terms = terms
        self._members = Members(dsns)
        self._looking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Reach the servers; those that do not answer are looked for from time to time."""
        try:
            with self._members.reaching() as attempt:
                for name in self._members.dsns:
                    with attempt(name):
                        await self._reach(name)
        except BaseException:
            await self.close()
            raise
        if self._members.fleet.absent:
            self._looking = asyncio.create_task(self._look_on())

    async def _reach(self, name: str) -> None:
        """Open a server, and take it in."""
        terms, members = self._terms, self._members
        opened = await open_server_soon(members.dsns[name], terms)
        async with AsyncExitStack() as kept:
            kept.push_async_callback(asyncio.to_thread, opened.source.close)
            members.fleet.admit(name, opened.shard)

            pool = sessions(
                opened.source.dsn,
                terms.pool_size,
                prepare=opened.source.prepare,
                join=opened.source.join,
                bound=terms.bound,
                configure=checked(
                    opened.source.prepare, partial(members.check, name, opened.shard)
                ),
                timeout=min(terms.bound, PATIENCE),
            )
            await kept.enter_async_context(pool)
            one = AsyncEventQueue(
                pool,
                namespace=self.verbs.namespace,
                queue=self.verbs.queue_name,
                worker=terms.worker,
                prepare=opened.source.prepare,
                codec=terms.codec,
            )
            members.join(name, opened, one)
            self._owned.push_async_exit(kept.pop_all())

    async def _look_on(self) -> None:
        while self._members.fleet.absent:
            await asyncio.sleep(LOOK_EVERY)
            for name in self._members.fleet.absent:
                with self._members.looking(name):
                    await self._reach(name)

    async def close(self) -> None:
        """Close the connections to all shards."""
        tasks = [*self._members.probes, *filter(None, [self._looking])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await super().close()

    @borrows(Verbs.extend)
    async def extend(self, *given: Any, **named: Any) -> Any:
        return await self.follow(self.plan(Verbs.extend, by_claim, given, named))

    @borrows(Verbs.import_state)
    async def import_state(self, file: File, **named: Any) -> Imported:
        raise InvalidInput(NO_FILES)

    @borrows(Verbs.export_state, AsyncIterator[bytes])
    def export_state(self, *, move: bool = False, actor: str | None = None) -> AsyncIterator[bytes]:
        raise InvalidInput(NO_FILES)

    @borrows(Verbs.replay, AsyncIterator[Event])
    def replay(self, **asked: Any) -> AsyncIterator[Event]:
        each = replays(asked, sorted(self.shards))
        return _merged([self.shards[number].replay(**mine) for number, mine in each.items()])


async def _merged(parts: list[AsyncIterator[Event]]) -> AsyncIterator[Event]:
    """The events of all, in the order of their times."""
    heads = [(await anext(part, None), part) for part in parts]
    waiting = [(event, part) for event, part in heads if event is not None]
    while waiting:
        event, part = first = min(waiting, key=lambda one: one[0].created_at)
        yield event
        waiting.remove(first)
        following = await anext(part, None)
        if following is not None:
            waiting.append((following, part))


borrow_all(AsyncShardedQueue, is_async=True)


def beside(queue: AsyncEventQueue, namespace: str, name: str) -> AsyncEventQueue:
    """Another queue, by the connections of this client, for as long as it is open."""
    worker = queue.verbs.worker
    if not isinstance(queue, AsyncShardedQueue):
        source, prepare = queue._source, queue._prepare
        return AsyncEventQueue(
            source, namespace=namespace, queue=name, worker=worker, prepare=prepare
        )
    return over_members(
        View(queue._members, lambda one: beside(one.queue, namespace, name)),
        namespace,
        name,
        worker,
    )


def over_members(
    members: Members[AsyncEventQueue], namespace: str, name: str, worker: str | None
) -> AsyncShardedQueue:
    """A client of shards that others have opened, and close."""
    made = AsyncShardedQueue.__new__(AsyncShardedQueue)
    made.verbs = Verbs(namespace, name, worker)
    made._owned = AsyncExitStack()
    made._members = members
    made._looking = None
    return made
