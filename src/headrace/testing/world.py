"""What a test can do with its database, and ask of it."""

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
  and e.type like any (select headrace.pattern(p) from unnest(%s::text[]) p)
order by e.id
"""


@dataclass
class World:
    """The database of the test that runs, and the namespace and queue that it means when it names none."""

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
        raise HeadraceError(
            "this needs a database: let the test ask for the fixture headrace_queue"
        )
    return _worlds[-1]


def advance(**duration: float) -> None:
    """Let time pass for the engine, and do what it makes due: advance(minutes=5). Delays and leases end, schedules
    fire; Python's clock stays as it is."""
    by = timedelta(**duration)
    if by < timedelta(0):
        raise InvalidInput("time does not run backwards")
    world = current()
    catch_up(world.queue)
    world.database.advance(by)
    catch_up(world.queue)


def catch_up(queue: EventQueue) -> None:
    """Do what is due, and plan what comes."""
    with suppress(InvalidInput):  # without the extra `schedules` there are none
        queue.plan_schedules()
    while queue.tick().more:
        pass


def published(*types: str, namespace: str | None = None) -> list[Event]:
    """The events of these types, which may hold asterisks, that were published in this test, in their order;
    without any, all of them."""
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
    """Events of this type were published, with at least this in the payload and these tags: exactly `count` of
    them, or else at least one. Gives them."""
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
    """Whether a payload has at least this in it: of objects the keys that are named, all else as it is."""
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
    wanted = f"{'an event' if count is None else f'{count} events'} of the type {type}"
    wanted += f" with {payload!r}" * (payload is not None) + f" tagged {list(tags)}" * bool(tags)
    found = f"{len(matching)} were" if matching else "none was"
    everything = published(namespace=namespace)
    lines = [f"  {event.type} {event.payload!r}" for event in islice(everything, SHOWN)]
    if len(everything) > SHOWN:
        lines.append(f"  and {len(everything) - SHOWN} more")
    story = "\n".join(["Published:", *lines]) if lines else "Nothing was published."
    return f"expected {wanted}, but {found} published.\n{story}"
