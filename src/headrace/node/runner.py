"""The calls of a node on its queue.

Ends have a connection of their own, so that they never wait for claims or for what handlers
publish.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from headrace.async_client import AsyncEventQueue
from headrace.engine.claim import Poll, Polled
from headrace.engine.database import started_within
from headrace.engine.finish import complete_lease, finish
from headrace.engine.leases import resolve
from headrace.engine.statement import ask
from headrace.model import Claimed, Dispatch, Result, Verdict
from headrace.node.claim.lane import Lane


class NodeRunner:
    def __init__(
        self,
        queue: AsyncEventQueue,
        ends: AsyncEventQueue,
        lease: timedelta,
        instance: str,
        dispatch: Dispatch,
    ) -> None:
        self.queue = queue
        self._ends = ends
        self._lease = lease
        self._instance = instance
        self._dispatch = dispatch
        self.names = queue.verbs.names

    async def claim(self, lane: Lane, max_events: int, limited: int) -> Polled:
        """Up to max_events, at most `limited` of them of groups with limits."""
        poll = Poll(
            None if lane.types is None else list(lane.types),
            list(lane.tags) if lane.tags else None,
            lane.all_tags,
            self.queue.verbs.worker,
            max_events,
            self._lease,
            lane.each,
            suspects=True,
            instance=self._instance,
            dispatch=self._dispatch,
            limited=limited,
        )
        return await self.queue.run(self.queue.verbs.claim_unread(poll))

    async def read(self, polled: Polled) -> list[Claimed]:
        """What was claimed; what cannot be read is dead-lettered."""
        found = polled.read()
        if found.unreadable:
            await self.queue.run(self.queue.verbs.bury(found.unreadable))
        return found.claimed

    async def complete_lease(
        self, lease: int, size: int, ms: int | None, token: str | None
    ) -> bool:
        """End all that a lease covers; False: some of it has ended, and nothing was done."""
        return await self._ends.run(ask(complete_lease(*self.names, lease, size, ms, None, token)))

    async def finish(self, results: Sequence[Result]) -> list[Verdict]:
        return await self._ends.run(ask(finish(*self.names, results)))

    async def progress(self, claimed: Claimed) -> Any:
        """The progress that earlier attempts saved for this one."""
        found = await self.queue.progress([claimed.id]) if claimed.attempt > 1 else {}
        return found.get(claimed.id)

    async def resolve(self, claimed: Claimed) -> str | None:
        """The end of a held attempt, for a caller that got no answer to its COMMIT."""
        return await self._ends.run(ask(resolve(*self.names, claimed.id, claimed.attempt)))

    async def started_within(self, seconds: float) -> bool:
        """Whether the server was started within the last `seconds`."""
        return await self._ends.run(ask(started_within(seconds)))
