"""Runs the handlers of a node until no event is left for them."""

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
from headrace.node.claim.lane import Lane
from headrace.node.node import Node, service_of
from headrace.node.registrations import handlers_of
from headrace.testing.world import World, catch_up, current

IDLE = 0.05  # seconds between two polls of the node

# Every publish, claim and finish draws a number of this sequence.
_LAST = "select last_value from headrace.ids"
# Another session is claiming, finishing or publishing: it has locked rows, and its changes are not
# visible yet.
_UNDER_WAY = """
select exists (
    select from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
      and state = 'active' and backend_xid is not null)
"""
_LEASES = "select id from headrace.leases"
_IN_WORK = """
select e.id, e.type from headrace.deliveries d join headrace.events e on e.id = d.event
where d.queue = (select q.id from headrace.queues q where q.space = %s and q.name = %s)
  and d.lease is not null and d.lease <> all (%s::bigint[])
limit 1
"""
_POLL = (
    "select id, type from headrace.poll("
    "%s, %s, %s::text[], %s::text[], %s, worker => 'drain', sweep => true)"
)


@dataclass(frozen=True)
class Drained:
    """The outcomes of the attempts."""

    completed: int
    failed: int
    """Attempts that will be retried."""
    dead_lettered: int
    errors: tuple[BaseException, ...]
    """The exceptions of handlers, in order."""


def drain(node: Node, *, reraise: bool = False, timeout: float = 30) -> Drained:
    """Run the handlers of a node, in this process and on the database of this test, until no
    event is ready for them; delayed events stay delayed, see `advance`. Exceptions of handlers
    are handled as always and returned; with `reraise` they are also raised here, in a group if
    there are several."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(drain_async(node, reraise=reraise, timeout=timeout))
    raise InvalidInput("inside an event loop, use `await drain_async(node)`")


async def drain_async(node: Node, *, reraise: bool = False, timeout: float = 30) -> Drained:  # noqa: ASYNC109
    """As `drain`, inside an event loop."""
    world = current()
    errors: list[BaseException] = []
    with _prepared(node, world, errors), Look(node, world.database.dsn) as look:
        await node.start()
        tally = service_of(node).tally
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
            raise AssertionError(f"the node has not finished within {timeout:g} seconds: {found}")
        await asyncio.sleep(IDLE / 5)


@contextmanager
def _prepared(node: Node, world: World, errors: list[BaseException]) -> Iterator[None]:
    """Point the node to the database of the test, and collect its errors."""
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
    """Looks for events that are left for a node, over a connection of its own."""

    def __init__(self, node: Node, dsn: str) -> None:
        self._node = node
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("set search_path = pg_catalog, pg_temp")
        self._queue = (node.settings.namespace, node.settings.queue)
        # Claims of the test itself, or of another worker in it.
        self._others = [lease for (lease,) in self._rows(_LEASES)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def left(self) -> str | None:
        """The work that is left; None: certainly nothing."""
        before = self._rows(_LAST)
        for lane in handlers_of(self._node).lanes():
            for id, type in self._claimable(lane):
                return f"event {id} ({type}) is ready"
        if self._rows(_UNDER_WAY) == [(True,)]:
            return "another session is at work"
        for id, type in self._rows(_IN_WORK, *self._queue, self._others):
            return f"event {id} ({type}) is in progress"
        return (
            None
            if self._rows(_LAST) == before
            else "an event was published, claimed or finished just now"
        )

    def _claimable(self, lane: Lane) -> list[tuple[Any, ...]]:
        """The events that a claim would get, in a transaction that is rolled back."""
        types = None if lane.types is None else list(lane.types)
        tags = list(lane.tags) if lane.tags else None
        with self._connection.transaction(force_rollback=True):
            return self._rows(_POLL, *self._queue, types, tags, lane.all_tags)

    def _rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(query, params).fetchall()
