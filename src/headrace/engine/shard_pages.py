"""Pages of several shards: merged by time, and a cursor that has a place on each."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import merge as merge_sorted
from typing import Any

import msgspec

from headrace.engine import cursors, log, shard_replies
from headrace.engine.arguments import MAX_ID, is_id
from headrace.engine.shard_routes import Ask, Gathered, Plan, Route, Use, gather, one, shard_of_id
from headrace.engine.shards import Cursor, Fleet
from headrace.engine.statement import Steps
from headrace.engine.statement import ask as ask_one
from headrace.engine.verbs import Verbs
from headrace.errors import InvalidInput, NotFound
from headrace.model import EventPage, LogPage
from headrace.model.shards import Merged

_NEXT = timedelta(microseconds=1)
_NOW = "now"  # the place on a shard that did not answer when a stream began: its end, once it does
_OTHERS = 9999  # stands for the shards that have not answered since the client was opened


def newest(field: str) -> Route:
    """The newest of all shards, by their time."""

    def route(use: Use) -> Plan[Any]:
        found = yield from gather(use.fleet, use.at)
        return shard_replies.newest(field, use.arguments["limit"])(found)

    return route


def checkpoints(use: Use) -> Plan[Any]:
    found = yield from gather(use.fleet, use.at)
    merge = shard_replies.newest("created_at", use.arguments["limit"])
    return merge(shard_replies.checkpoints(found))


def states(use: Use) -> Plan[Any]:
    found = yield from gather(use.fleet, use.at)
    return shard_replies.state(found, use.arguments["limit"])


def groups(use: Use) -> Plan[Any]:
    found = yield from gather(use.fleet, use.at)
    merged = shard_replies.letter_groups(found)
    return Merged(merged[: use.arguments["limit"]], merged.missing)


def pages(use: Use) -> Plan[EventPage]:
    arguments = use.arguments
    limit, offset = arguments["limit"], arguments["offset"]
    name = "after" if arguments["oldest_first"] else "before"
    if not isinstance(limit, int) or not isinstance(offset, int) or min(limit, offset) < 0:
        refused: EventPage = yield from one(use.at(use.fleet.numbers[0]))
        return refused
    places = yield from _begin(use, arguments)

    def ask(number: int) -> Ask:
        return use.at(number, limit=limit + offset, offset=0, **places(number))

    found = yield from gather(use.fleet, ask)
    lists = {number: page.events for number, page in found.values.items()}
    told, cursor = _merged(lists, limit + offset, places, name, oldest_first=name == "after")
    parts: list[EventPage] = found.all
    stopped = {n: page.searched_to for n, page in found.values.items() if page.searched_to}
    if stopped and cursor is None:
        reached = {number: str(id) for number, id in stopped.items()}
        end = "0" if name == "before" else str(MAX_ID)
        cursor = str(Cursor({number: reached.get(number, end) for number in found.values}))
    return EventPage(
        [event for _, event in told][offset:],
        sum(page.total for page in parts),
        all(page.total_is_exact for page in parts) and not found.missing,
        cursor=cursor,
        missing=found.missing,
    )


def letters(use: Use) -> Plan[Merged[Any]]:
    return (yield from _paged(use))


def actions(use: Use) -> Plan[Merged[Any]]:
    before = use.arguments["before"]
    if before is not None and not isinstance(before, str):
        raise InvalidInput(
            "the administration log of several shards goes on before a cursor, not before an id"
        )
    return (yield from _paged(use))


def _paged(use: Use) -> Plan[Merged[Any]]:
    arguments = use.arguments
    limit = arguments["limit"]
    places = yield from _begin(use, arguments)
    found = yield from gather(use.fleet, lambda n: use.at(n, **places(n)))
    told, cursor = _merged(found.values, limit, places, "before", oldest_first=False)
    return Merged([one for _, one in told], found.missing, cursor)


Places = Callable[[int], dict[str, Any]]


def _begin(use: Use, arguments: Mapping[str, Any]) -> Plan[Places]:
    """Where each shard continues: at its place in a cursor, or before or after an event; on the
    shards that do not have the event, at its time."""
    cursors: dict[str, Cursor] = {}
    for name in ("before", "after"):
        given = arguments.get(name)
        if given is None:
            continue
        if isinstance(given, str):
            read = Cursor.read(given)
            if read is None or not all(place.isdigit() for place in read.places.values()):
                raise InvalidInput(f"{given!r} is not the cursor of a page")
            cursors[name] = read
        elif is_id(given):
            cursors[name] = yield from _around(use, name, given)
        elif given == 0:
            cursors[name] = Cursor(dict.fromkeys(use.fleet.numbers, "0"))
        else:
            raise InvalidInput(f"{given!r} is not the id of an event")

    def places(number: int) -> dict[str, Any]:
        found = {name: cursor.places.get(number, "") for name, cursor in cursors.items()}
        return {name: int(place) if place else None for name, place in found.items()}

    return places


def _around(use: Use, name: str, id: int) -> Plan[Cursor]:
    owner = shard_of_id(use.fleet, id)
    [reply] = yield [Ask(owner, lambda verbs: verbs.event(id))]
    if isinstance(reply.error, NotFound):  # a mere number, in the order of numbers
        return Cursor(dict.fromkeys(use.fleet.numbers, str(id)))
    if reply.error is not None:
        raise reply.error
    time: datetime = reply.value.created_at
    edge = {"until": time} if name == "before" else {"since": time + _NEXT, "oldest_first": True}
    others = [number for number in use.fleet.up if number != owner]
    ends = {owner: str(id)}
    replies = yield [Ask(number, lambda verbs: verbs.events(limit=1, **edge)) for number in others]
    for reply in replies:
        if reply.error is None:
            events = reply.value.events
            if name == "before":
                ends[reply.shard] = str(events[0].id + 1 if events else 0)
            else:
                ends[reply.shard] = str(events[0].id - 1 if events else MAX_ID)
    return Cursor(ends)


def _merged(
    lists: Mapping[int, list[Any]], limit: int, places: Places, name: str, *, oldest_first: bool
) -> tuple[list[tuple[int, Any]], str | None]:
    """The first of all by time, each with its shard, and the cursor after them; None: that is all."""
    streams = [[(number, item) for item in items] for number, items in lists.items()]
    every = merge_sorted(
        *streams, key=lambda told: (told[1].created_at, told[1].id), reverse=not oldest_first
    )
    told = list(every)
    if len(told) < limit or not told:
        return told, None
    told = told[:limit]
    ends: dict[int, str] = {}
    for number in lists:
        given = places(number).get(name)
        if given is not None:
            ends[number] = str(given)
    ends |= {number: str(item.id) for number, item in told}
    return told, str(Cursor({number: ends.get(number, "") for number in lists}))


def log_pages(use: Use) -> Plan[LogPage]:
    """The log of all shards, in the order of time as far as it is known; of each shard nothing is
    skipped. A shard that does not answer keeps its place."""
    arguments = use.arguments
    after, limit = arguments["after"], arguments["limit"]
    before = _log_places(after)
    marks = _marks(arguments["mark"], after)

    def ask(number: int) -> Ask:
        place = before.get(number, before.get(_OTHERS, 0))
        if place == _NOW:
            return Ask(number, lambda verbs: _from_now(verbs, limit, arguments["actions"]))
        return use.at(number, after=place, mark=marks.get(number))

    found: Gathered = yield from gather(use.fleet, ask)
    pages: dict[int, LogPage] = found.values
    streams = [[(number, entry) for entry in page.entries] for number, page in pages.items()]
    told = list(merge_sorted(*streams, key=lambda one: one[1].created_at))[:limit]
    last = {number: entry.id for number, entry in told}
    counts = {number: sum(n == number for n, _ in told) for number in pages}
    places, kept = dict(before), {}
    for number, page in pages.items():
        if counts[number] == len(page.entries):
            places[number], kept[number] = page.cursor, page.mark
        elif number in last:
            places[number] = cursors.moved(page.cursor, last[number])
    cursor = Cursor({number: str(place) for number, place in places.items()})
    rewound = [page.rewound_to for page in pages.values() if page.rewound_to is not None]
    return LogPage(
        [entry for _, entry in told],
        told[-1][1].id if told else 0,
        f"{cursor} {_encoded(kept)}",
        max(page.read_to for page in pages.values()),
        min(rewound, default=None),
        missing=found.missing,
    )


def _from_now(verbs: Verbs, limit: int, actions: Sequence[str] | None) -> Steps[LogPage]:
    mark, _ = yield from ask_one(log.log_now())
    after = mark.partition(" ")[0]
    return (yield from verbs.log_since(after, limit=limit, actions=actions, mark=mark))


def log_now(fleet: Fleet) -> Plan[str]:
    """A mark for log_since, to read what happens on all shards from now on."""
    found = yield from gather(fleet, lambda n: Ask(n, lambda verbs: ask_one(log.log_now())))
    marks = {number: mark for number, (mark, _) in found.values.items()}
    places = dict.fromkeys(fleet.numbers, _NOW)
    places |= {number: mark.partition(" ")[0] for number, mark in marks.items()}
    if fleet.absent:
        places[_OTHERS] = _NOW
    return f"{Cursor(places)} {_encoded(marks)}"


def log_is_past(cursor: str, end: str) -> bool:
    """Whether a cursor is at or behind another, on every shard that both name."""
    reached, ends = Cursor.read(cursor), Cursor.read(end)
    if reached is None or ends is None:
        return False
    return all(
        _NOW in (place, reached.places.get(number, _NOW))
        or cursors.read(reached.places[number])[0] >= cursors.read(place)[0]
        for number, place in ends.places.items()
    )


def _log_places(after: int | str) -> dict[int, int | str]:
    if isinstance(after, str) and (read := Cursor.read(after)) is not None:
        return dict(read.places)
    if after in (0, "0"):
        return {}
    raise InvalidInput(
        f"the log of several shards goes on after the cursor of a page, or after 0, not {after!r}"
    )


def _encoded(marks: dict[int, str]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(marks)).decode()


def _marks(mark: str | None, after: int | str) -> dict[int, str]:
    """The marks of log_since, by shard: they tell which transactions are still open. They may be
    lost."""
    cursor, _, encoded = (mark or "").partition(" ")
    if not encoded or cursor != after:
        return {}
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(encoded), type=dict[int, str])
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{mark!r} is not the mark of a page of the log") from error


def replays(asked: dict[str, Any], numbers: Sequence[int]) -> dict[int, dict[str, Any]]:
    """The arguments of the replay of each shard. A checkpoint is one of several shards: one that it
    does not name had finished nothing."""
    checkpoint = asked.get("from_checkpoint")
    given = getattr(checkpoint, "checkpoint_id", checkpoint)
    if given is None or given in (0, "0"):
        return dict.fromkeys(numbers, asked)
    read = Cursor.read(given) if isinstance(given, str) else None
    if read is None or not all(place.isdigit() for place in read.places.values()):
        raise InvalidInput(
            f"events of several shards are read again from a checkpoint of them, not {given!r}"
        )
    return {
        number: {**asked, "from_checkpoint": int(read.places.get(number, 0))} for number in numbers
    }
