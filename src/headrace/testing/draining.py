"""Runs the handlers of a node until there is nothing left for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Self

import psycopg

from headrace.errors import InvalidInput
from headrace.model import Claimed
from headrace.node.lanes import Lane
from headrace.node.node import Node
from headrace.testing.world import World, catch_up, current

IDLE = 0.05  # seconds between two polls of the node, and between two looks

# Whatever is published, claimed or finished has a number of this line.
_LAST = "select last_value from headrace.ids"
# Somebody is just claiming, finishing or publishing: he has locked rows, and nobody sees yet what for.
_UNDER_WAY = """
select exists (
    select from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and state = 'active' and backend_xid is not null)
"""
_LEASES = "select id from headrace.leases"
_IN_WORK = """
select e.id, e.type from headrace.deliveries d join headrace.events e on e.id = d.event
where d.queue = (select q.id from headrace.queues q where q.space = %s and q.name = %s)
  and d.lease is not null and d.lease <> all (%s::bigint[])
limit 1
"""
_POLL = "select id, type from headrace.poll(%s, %s, %s::text[], %s::text[], %s, worker => 'drain', sweep => true)"


@dataclass(frozen=True)
class Drained:
    """What became of the attempts that were made."""

    completed: int
    failed: int
    """They will be tried again."""
    dead_lettered: int
    errors: tuple[BaseException, ...]
    """What handlers raised, in order."""


def drain(node: Node, *, reraise: bool = False, timeout: float = 30) -> Drained:
    """Run the handlers of a node, in this process and on the database of this test, until nothing is ready for
    them; what waits for its time waits on, see `advance`. What they raise is dealt with as ever, and given back;
    with `reraise` it is also raised here, in a group if there were several."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(drain_async(node, reraise=reraise, timeout=timeout))
    raise InvalidInput("inside an event loop it is `await drain_async(node)`")


async def drain_async(node: Node, *, reraise: bool = False, timeout: float = 30) -> Drained:  # noqa: ASYNC109
    """As `drain`, awaited."""
    world = current()
    errors: list[BaseException] = []
    with _prepared(node, world, errors), Look(node, world.database.dsn) as look:
        await node.start()
        tally = node._running().tally
        try:
            await asyncio.to_thread(catch_up, world.queue)
            await _until_idle(look, timeout)
        except BaseException:
            await node.stop(grace=0)
            raise
        await node.stop()
    if reraise and errors:
        raise errors[0] if len(errors) == 1 else BaseExceptionGroup("handlers failed", errors)
    return Drained(
        tally.count("completed"), tally.count("failed"), tally.count("dead_lettered"), tuple(errors)
    )


async def _until_idle(look: Look, timeout: float) -> None:  # noqa: ASYNC109
    deadline = time.monotonic() + timeout
    while (found := await asyncio.to_thread(look.left)) is not None:
        if time.monotonic() > deadline:
            raise AssertionError(f"the node is not done in {timeout:g} seconds: {found}")
        await asyncio.sleep(IDLE / 5)


@contextmanager
def _prepared(node: Node, world: World, errors: list[BaseException]) -> Iterator[None]:
    """The node for the test's database, and its errors noted."""
    settings = node.settings

    def note(error: BaseException, claimed: Claimed) -> object:
        errors.append(error)
        return settings.on_error(error, claimed) if settings.on_error else None

    node.settings = replace(
        settings, dsn=world.database.dsn, data=None, migrate=None, idle=IDLE, on_error=note
    )
    try:
        yield
    finally:
        node.settings = settings


class Look:
    """Whether there is anything left for a node, by a connection of its own."""

    def __init__(self, node: Node, dsn: str) -> None:
        self._node = node
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("set search_path = pg_catalog, pg_temp")
        self._queue = (node.settings.namespace, node.settings.queue)
        # What the test has claimed itself, or another worker of its.
        self._others = [lease for (lease,) in self._rows(_LEASES)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def left(self) -> str | None:
        """What there is left to do; None: nothing, for certain."""
        before = self._rows(_LAST)
        for lane in self._node._handlers.lanes():
            for id, type in self._claimable(lane):
                return f"event {id} ({type}) is ready"
        if self._rows(_UNDER_WAY) == [(True,)]:
            return "somebody is at it"
        for id, type in self._rows(_IN_WORK, *self._queue, self._others):
            return f"event {id} ({type}) is in work"
        return None if self._rows(_LAST) == before else "something has happened just now"

    def _claimable(self, lane: Lane) -> list[tuple[Any, ...]]:
        """What a claim would get, in a transaction that comes to nothing."""
        types = None if lane.types is None else list(lane.types)
        tags = list(lane.tags) if lane.tags else None
        with self._connection.transaction(force_rollback=True):
            return self._rows(_POLL, *self._queue, types, tags, lane.all_tags)

    def _rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, params).fetchall()
