"""Functions for a test: move the clock, and look at published events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

from headrace.client import EventQueue
from headrace.errors import HeadraceError, InvalidInput
from headrace.model import Event
from headrace.testing.database import Database

SHOWN = 20  # events that a failed assertion lists

_PUBLISHED = """
select e.id from headrace.events e
where e.namespace = (select n.id from headrace.namespaces n where n.name = %s)
  and e.type like any (select headrace._like_pattern(p) from unnest(%s::text[]) p)
order by e.id
"""


@dataclass
class World:
    """The database of the running test, and its default namespace and queue."""

    database: Database
    namespace: str
    queue: EventQueue


_worlds: list[World] = []


def enter(world: World) -> None:
    _worlds.append(world)


def leave(world: World) -> None:
    _worlds.remove(world)


def current() -> World:
    if not _worlds:
        raise HeadraceError("no database: add the fixture headrace_queue to the test")
    return _worlds[-1]


def advance(**duration: float) -> None:
    """Move the engine's clock forward, and do the work that becomes due: advance(minutes=5).
    Delays and leases end, schedules fire; Python's clock stays unchanged."""
    by = timedelta(**duration)
    if by < timedelta(0):
        raise InvalidInput("advance moves the clock forward only: give a positive duration")
    world = current()
    catch_up(world.queue)
    world.database.advance(by)
    catch_up(world.queue)


def catch_up(queue: EventQueue) -> None:
    """Do the work that is due, and plan the schedules."""
    with suppress(InvalidInput):  # without the extra `schedules` there are none
        queue.plan_schedules()
    while queue.tick().more:
        pass


def published(*types: str, namespace: str | None = None) -> list[Event]:
    """The events that were published in this test, in order; with `types`, in which * is a
    wildcard, only those."""
    world = current()
    home, patterns = namespace or world.namespace, list(types) or ["*"]
    queue = EventQueue(world.database.connection, namespace=home, prepare=False)
    return [queue.event(id) for (id,) in world.database.sql(_PUBLISHED, [home, patterns])]


def assert_published(
    type: str,
    payload: Any = None,
    *,
    count: int | None = None,
    tags: Sequence[str] = (),
    namespace: str | None = None,
) -> list[Event]:
    """Assert that events of this type were published whose payload includes `payload`, with
    these tags: exactly `count` of them, or at least one. Returns them."""
    __tracebackhide__ = True
    there = published(type, namespace=namespace)
    matching = [
        event
        for event in there
        if includes(event.payload, payload) and set(tags) <= set(event.tags)
    ]
    if not matching if count is None else len(matching) != count:
        raise AssertionError(_complaint(type, payload, count, tags, matching, namespace))
    return matching


def includes(whole: Any, part: Any) -> bool:
    """Whether a payload includes a part: objects need the given keys, other values are equal."""
    if part is None:
        return True
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return all(
            key in whole
            and (whole[key] == value or (value is not None and includes(whole[key], value)))
            for key, value in part.items()
        )
    return bool(whole == part)


def _complaint(
    type: str,
    payload: Any,
    count: int | None,
    tags: Sequence[str],
    matching: Sequence[Event],
    namespace: str | None,
) -> str:
    wanted = f"{'an event' if count is None else f'{count} events'} of type {type}"
    wanted += f" with {payload!r}" * (payload is not None) + f" tagged {list(tags)}" * bool(tags)
    found = f"{len(matching)} were" if matching else "none was"
    everything = published(namespace=namespace)
    lines = [f"  {event.type} {event.payload!r}" for event in islice(everything, SHOWN)]
    if len(everything) > SHOWN:
        lines.append(f"  and {len(everything) - SHOWN} more")
    story = "\n".join(["Published:", *lines]) if lines else "Nothing was published."
    return f"expected {wanted}, but {found} published.\n{story}"
