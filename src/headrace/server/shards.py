"""A server over several shards: the connections to each, and what is asked of all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, TypeVar

from headrace.async_client import AsyncEventQueue, AsyncShardedQueue, connect_async, over_members
from headrace.driver.explain import NotStored
from headrace.driver.listen import Wakeups
from headrace.driver.readiness import Trouble
from headrace.driver.shards import View
from headrace.engine.shard_publish import publish_event
from headrace.engine.shard_routes import (
    Ask,
    Gathered,
    Use,
    change_all,
    first_that_answers,
    gather,
    nothing,
)
from headrace.engine.statement import Statement, ask
from headrace.engine.verbs import Verbs
from headrace.model import Claimed, Event, NewEvent
from headrace.server.bulkheads import charged_to_namespace
from headrace.server.clients import Directory, Lane, Look, open_directory
from headrace.server.long_poll import Watch

T = TypeVar("T")

LOOK_EVERY = 1.0  # seconds between two looks for shards that are not open yet
NEVER = "a server that has not answered yet"
PATIENCE = 5.0  # seconds for a call of the client that recognises shards

logger = logging.getLogger("headrace.server")


class ShardReadiness:
    """The server is ready while one shard is."""

    def __init__(self, directory: ShardedDirectory) -> None:
        self._directory = directory

    async def trouble(self) -> Trouble | None:
        return await self._ask(lately=False)

    async def trouble_lately(self) -> Trouble | None:
        return await self._ask(lately=True)

    async def _ask(self, *, lately: bool) -> Trouble | None:
        parts = list(self._directory.by_shard.values())
        found = await asyncio.gather(
            *(
                one.readiness.trouble_lately() if lately else one.readiness.trouble()
                for one in parts
            )
        )
        return next(iter(found)) if all(found) else None

    async def without(self) -> list[str]:
        """The shards that do not commit, and why. Anybody may ask, so where they are stays unsaid."""
        told = [NEVER for _ in self._directory.absent]
        for number, part in sorted(self._directory.by_shard.items()):
            trouble = await part.readiness.trouble()
            if trouble is not None:
                told.append(f"shard {number}: {trouble.sentence}")
        return told


class ShardedDirectory(Directory):
    """The clients of all queues, over all shards. `parts` are the directories of one shard each."""

    over_shards = True

    def __init__(self, whole: AsyncShardedQueue) -> None:
        self.whole = whole
        self.by_shard: dict[int, Directory] = {}
        super().__init__({}, prepare=True, readiness=ShardReadiness(self))  # type: ignore[arg-type]

    @property
    def parts(self) -> Sequence[Directory]:
        return [self.by_shard[number] for number in sorted(self.by_shard)]

    @property
    def missing(self) -> tuple[str, ...]:
        """For every client, so where a server is stays unsaid."""
        down = [f"shard {number}" for number in sorted(self.whole.fleet.down)]
        return (*down, *(NEVER for _ in self.absent))

    @property
    def absent(self) -> list[str]:
        """The servers that are not open yet."""
        known = {name for n, name in self.whole.places.items() if n in self.by_shard}
        return [name for name in self.whole.dsns if name not in known]

    def name(self, number: int) -> str:
        return f"shard {number} ({self.whole.places[number]})"

    def _made(self, namespace: str, queue: str, lane: Lane) -> AsyncEventQueue:
        members = View(
            self.whole.members,
            lambda member: (
                self.by_shard[member.number].of(namespace, queue, lane=lane)
                if member.number in self.by_shard
                else None
            ),
        )
        return over_members(members, namespace, queue, "http")

    def _over(self, lane: Lane) -> Any:
        return self.of("default", "main", lane=lane)

    async def ask(self, statement: Statement[T], *, lane: Lane = "work") -> T:
        """Read what all shards answer alike, from any of them."""
        client = self._over(lane)
        found: T = await client.follow(
            first_that_answers(
                client.fleet, lambda n: Ask(n, lambda verbs: ask(statement)), is_read=True
            )
        )
        return found

    def at(self, id: int) -> Directory:
        number = self.whole.holder_of(id)
        if number not in self.by_shard:
            raise NotStored(f"{self.name(number)} is not open yet: nothing was changed")
        return self.by_shard[number]

    async def everywhere(
        self, statement: Statement[T], merge: Callable[[Gathered], T], *, lane: Lane = "work"
    ) -> T:
        client = self._over(lane)
        found = await client.follow(
            gather(client.fleet, lambda n: Ask(n, lambda verbs: ask(statement)))
        )
        return merge(found)

    async def change_all(self, statement: Statement[Any]) -> None:
        client = self._over("work")
        await client.follow(
            change_all(client.fleet, lambda n: Ask(n, lambda verbs: ask(statement)), nothing)
        )

    async def publish(self, namespace: str, event: NewEvent) -> Event:
        """Events of one shard go together there, as those of one database do."""
        client: Any = self.of(namespace, "main")
        use = Use(client.fleet, client.verbs, Verbs.publish_event, (event, True), {})
        with charged_to_namespace(namespace):
            published: Event = await client.follow(publish_event(use))
        return published

    async def claim(self, look: Look) -> list[Claimed]:
        return await self.of(*look.verbs.names).poll(**look.arguments)

    def look_in(self, look: Look) -> float | None:
        client: Any = self.of(*look.verbs.names)
        told = [look.soon(one.verbs) for one in client.shards.values()]
        return min((one for one in told if one is not None), default=None)

    async def why(self, error: Exception) -> Exception:
        return error


class AllWakeups:
    """Wakes watches when there may be work on any shard."""

    def __init__(self) -> None:
        self.parts: list[Wakeups] = []

    @property
    def working(self) -> bool:
        return all(one.working for one in self.parts)

    def watch(self, namespace: str, queue: str) -> Watch:
        return _AnyWatch([one.watch(namespace, queue) for one in self.parts])


class _AnyWatch:
    def __init__(self, watches: Sequence[Watch]) -> None:
        self._watches = watches

    async def arm(self) -> None:
        await asyncio.gather(*(one.arm() for one in self._watches))

    async def wait(self, timeout: float) -> bool:  # noqa: ASYNC109
        waiting = [asyncio.ensure_future(one.wait(timeout)) for one in self._watches]
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            return any(one.result() for one in done)
        finally:
            for one in waiting:
                one.cancel()

    def wake(self) -> None:
        for one in self._watches:
            one.wake()

    def found(self) -> None:
        for one in self._watches:
            one.found()

    def disarm(self) -> None:
        for one in self._watches:
            one.disarm()


@asynccontextmanager
async def open_shards(
    dsns: Sequence[str], *, connections: int = 10, prepare: bool = True
) -> AsyncIterator[tuple[ShardedDirectory, AllWakeups]]:
    """The connections to all shards that answer; the others are opened when they do. Each shard gets
    so many connections."""
    async with AsyncExitStack() as stack:
        whole = await connect_async(dsns, prepare=prepare, pool_size=1, timeout=PATIENCE)
        stack.push_async_callback(whole.close)
        assert isinstance(whole, AsyncShardedQueue)
        directory, wakeups = ShardedDirectory(whole), AllWakeups()

        async def open_missing() -> None:
            for number, name in whole.places.items():
                if number not in directory.by_shard:
                    await open_one(number, name)

        async def open_one(number: int, name: str) -> None:
            dsn = whole.dsns[name]
            opened = open_directory(
                dsn, connections=connections, prepare=prepare, check=whole.checking(number)
            )
            part = await stack.enter_async_context(opened)
            wakeups.parts.append(await stack.enter_async_context(Wakeups(dsn, prepare=prepare)))
            directory.by_shard[number] = part

        async def open_later() -> None:
            while directory.absent:
                await asyncio.sleep(LOOK_EVERY)
                try:
                    await open_missing()
                except Exception as error:
                    logger.warning("a shard cannot be opened: %s", error)

        await open_missing()
        later = asyncio.create_task(open_later())
        try:
            yield directory, wakeups
        finally:
            later.cancel()
            with suppress(asyncio.CancelledError):
                await later
