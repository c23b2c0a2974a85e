"""Publish over several shards: keys go to their homes, the rest anywhere.

A keyed event never goes to another shard than its home, whatever is down. A map of homes that is
old is corrected by the refusal of the shard that was taken for the home. A slot that has moved
lately is asked about idempotency keys where it was before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.engine.caller import Connection
from headrace.engine.encoding import Batch, batches, details, encoded, new_event, single
from headrace.engine.publish import pending
from headrace.engine.shard_routes import Ask, Plan, Reply, Use, absent, first_that_answers, one
from headrace.engine.shards import Slot, published_before, slots
from headrace.engine.statement import ask
from headrace.errors import (
    IdempotencyConflict,
    InvalidInput,
    NotStored,
    PartlyStored,
    Unavailable,
    WrongShard,
)
from headrace.model import Ids, NewEvent, Publishable
from headrace.model.pauses import NO_JITTER, Pauses

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 0.5  # seconds
FRESH = 30.0  # seconds between two questions who is still to be asked about idempotency keys
PATIENCE = 10.0  # seconds for which a slot may be between two shards


class _Patience:
    """How long a slot that no shard takes is waited for."""

    def __init__(self) -> None:
        self._pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE, jitter=NO_JITTER)
        self._waited = 0.0

    def pause(self, refusal: WrongShard) -> float:
        if self._waited >= PATIENCE:
            raise refusal
        pause = self._pauses.next()
        self._waited += pause
        return pause


def publish(use: Use) -> Plan[Any]:
    """One event."""
    arguments = use.arguments
    event = new_event(NewEvent(**{name: arguments[name] for name in NewEvent.__struct_fields__}))
    return (yield from _publish(use, event, arguments["enforce"], arguments["connection"]))


def publish_event(use: Use) -> Plan[Any]:
    """A NewEvent that is traced already."""
    event, enforce = use.given
    return (yield from _publish(use, event, enforce, None))


def _publish(use: Use, event: NewEvent, enforce: bool, connection: Connection | None) -> Plan[Any]:
    key, joined = key_of(event), connection is not None
    if key is None:
        if joined:
            return (
                yield from one(use.at(use.fleet.numbers[0]))
            )  # any: it goes to the connection's
        return (yield from first_that_answers(use.fleet, use.at))
    patience = _Patience()
    while True:
        home = yield from _home_of(use, key)
        asked = event.idempotency_key is not None and bool(home.ask)
        if asked:
            event = use.verbs.codecs.encoded(event)
            given = details(event)
            known, first = yield from _published_before(use, home, single(encoded(event, given)))
            if known[0] is not None:
                return pending(use.verbs.namespace, event, given, first)
        try:
            if asked:
                return (yield from one(_asked(use, home, event, enforce, connection)))
            return (yield from one(use.at(_home(use, home))))
        except WrongShard as refusal:
            yield from _learn(use, home.home, refusal)
            if joined:
                raise  # the caller's transaction is lost
            if _is_between(use, home, refusal):
                yield patience.pause(refusal)


def _asked(
    use: Use, home: Slot, event: NewEvent, enforce: bool, connection: Connection | None
) -> Ask:
    return Ask(
        _home(use, home),
        lambda verbs: verbs.publish_asked(event, enforce, connection),
        connection,
    )


def _home(use: Use, home: Slot) -> int:
    return _reachable(use, home.home, f"the home of the key is shard {home.home}")


def _reachable(use: Use, number: int, why: str) -> int:
    if number not in use.fleet.shards:
        if use.fleet.absent:
            raise absent(use.fleet, why)
        raise NotStored(f"{why}, which was not named to this client: nothing was stored")
    return number


def _published_before(use: Use, home: Slot, batch: Batch) -> Plan[Any]:
    """The answers of the shards that were the previous home, to a batch of their idempotency keys."""
    known: list[int | None] = []
    first = None
    for number in home.ask:
        known_by = _reachable(use, number, f"the idempotency key may be one of shard {number}")
        ids, told = yield from one(
            Ask(known_by, lambda verbs: ask(published_before(verbs.namespace, batch)))
        )
        known = [a or b for a, b in zip(known or ids, ids, strict=True)]
        first = first or (told if ids[0] is not None else None)
    return known, first


def _home_of(use: Use, key: str) -> Plan[Slot]:
    """Who learned the homes in the middle of a move would ask the one before for ever: so the home is
    asked from time to time whether that is still needed."""
    homes, clock = use.fleet.homes, use.verbs.memory.clock
    home = homes.of(use.verbs.namespace, key)
    if home.ask and home.home in use.fleet.shards and clock() >= homes.fresh_until:
        homes.fresh_until = clock() + FRESH
        [reply] = yield [Ask(home.home, lambda verbs: ask(slots()))]
        if reply.error is None:
            homes.learn(reply.shard, reply.value)
        home = homes.of(use.verbs.namespace, key)
    return home


def _learn(use: Use, teller: int, refusal: WrongShard) -> Plan[None]:
    """Take the refusal for what it says, and all that the shards know beside it."""
    fleet = use.fleet
    fleet.homes.correct(teller, refusal)
    replies: list[Reply] = yield [Ask(number, lambda verbs: ask(slots())) for number in fleet.up]
    for reply in replies:
        if reply.error is None:
            fleet.homes.learn(reply.shard, reply.value)


def _is_between(use: Use, home: Slot, refusal: WrongShard) -> bool:
    """Whether the shard that must be the home says that it is not: it has not accepted the slot
    yet."""
    slot = home.slot if refusal.slot is None else refusal.slot
    return refusal.home != home.home and use.fleet.homes.of_slot(slot).home == home.home


# The first of these that an event has decides where it goes: as in _check_homes.
_KEYS = ("key", "unique", "debounce", "idempotency_key")


def key_of(event: Publishable) -> str | None:
    """The key that decides where an event goes."""
    if isinstance(event, NewEvent):
        given = (getattr(event, name) for name in _KEYS)
    elif isinstance(event, Mapping):
        given = (event.get(name) for name in _KEYS)
    else:
        return None
    found = next((key for key in given if key is not None), None)
    return found if isinstance(found, str) else None  # the engine refuses the rest


def _has_idempotency_key(event: Publishable) -> bool:
    if isinstance(event, NewEvent):
        return event.idempotency_key is not None
    return isinstance(event, Mapping) and event.get("idempotency_key") is not None


def publish_many(use: Use) -> Plan[Ids]:
    """A batch: on one shard where it has no keys, else split by the homes of its keys. All or nothing
    holds on each shard."""
    arguments = use.arguments
    events: list[Publishable] = list(use.verbs.codecs.encoded_all(arguments["events"]))
    keys = [key_of(event) for event in events]
    if not any(keys):
        if arguments["connection"] is not None:
            ids: Ids = yield from one(use.at(use.fleet.numbers[0], events=events))
        else:
            ids = yield from first_that_answers(use.fleet, lambda n: use.at(n, events=events))
        return ids
    return (yield from _Split(use, events, keys).publish())


class _Split:
    """A batch on its way to several shards."""

    def __init__(self, use: Use, events: list[Publishable], keys: list[str | None]) -> None:
        self.use = use
        self.events = events
        self.keys = keys
        self.ids: list[int | None] = [None] * len(events)
        self.pressure = False

    def publish(self) -> Plan[Ids]:
        patience = _Patience()
        left = range(len(self.events))
        joined = self.use.arguments["connection"] is not None
        while left:
            refused: list[int] = []
            for home, places in self._by_home(left):
                try:
                    yield from self._publish_at(home, places)
                except WrongShard as refusal:
                    yield from _learn(self.use, home.home, refusal)
                    if joined:
                        raise
                    if _is_between(self.use, home, refusal):
                        yield patience.pause(refusal)
                    refused += places
                except Exception as error:
                    raise self._partly(places, error) from error
            left = refused  # type: ignore[assignment]
        return Ids((id for id in self.ids if id is not None), self.pressure)

    def _by_home(self, left: Iterable[int]) -> list[tuple[Slot, list[int]]]:
        """The places of the events that go together: to one home, after asking the same shards.
        Events without a key go with any of them."""
        homes = self.use.fleet.homes
        groups: dict[Any, tuple[Slot, list[int]]] = {}
        loose: list[int] = []
        for place in left:
            key = self.keys[place]
            if key is None:
                loose.append(place)
                continue
            slot = homes.of(self.use.verbs.namespace, key)
            asks = slot.ask if _has_idempotency_key(self.events[place]) else ()
            slot = slot._replace(ask=asks)
            groups.setdefault((slot.home, asks), (slot, []))[1].append(place)
        if loose:
            if not groups:
                any_home = Slot(-1, self.use.fleet.in_turn()[0], 0, None, ())
                groups[any_home.home, ()] = any_home, []
            with_first = next(iter(groups.values()))[1]
            with_first += loose
            with_first.sort()
        return list(groups.values())

    def _publish_at(self, home: Slot, places: list[int]) -> Plan[None]:
        use = self.use
        enforce, connection = use.arguments["enforce"], use.arguments["connection"]
        if home.ask:
            known: list[int | None] = []
            for batch in batches([self.events[place] for place in places]):
                ids, _ = yield from _published_before(use, home, batch)
                known += ids
            for place, id in zip(places, known, strict=True):
                self.ids[place] = id
            places = [place for place in places if self.ids[place] is None]
            if not places:
                return
        mine = [self.events[place] for place in places]
        if home.ask:
            published = yield from one(
                Ask(
                    _home(use, home),
                    lambda verbs: verbs.publish_many_asked(mine, enforce, connection),
                    connection,
                )
            )
        else:
            published = yield from one(use.at(_home(use, home), events=mine))
        for place, id in zip(places, published, strict=True):
            self.ids[place] = id
        self.pressure = self.pressure or published.pressure

    def _partly(self, places: list[int], error: Exception) -> Exception:
        if isinstance(error, InvalidInput | IdempotencyConflict) and error.position is not None:
            error.position = places[error.position] if error.position < len(places) else None
        stored = sum(id is not None for id in self.ids)
        if not stored:
            return error
        unknown = isinstance(error, Unavailable) and not isinstance(error, NotStored)
        rest = (
            "it is not known whether a part of the others is" if unknown else "the others are not"
        )
        return PartlyStored(
            f"{stored} of {len(self.events)} events are stored, and {rest}: {error}", self.ids
        )
