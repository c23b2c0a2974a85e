"""Moves slots of keys between shards, step by step, so that no key is delivered out of order.

The old home gives the slots and from then on refuses their keys. The new home accepts them at once,
and delivers nothing of them until the old one has no delivery of them left. An interrupted move
continues when it is called again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from headrace.engine.shard_routes import Ask, Plan, Reply, absent, one
from headrace.engine.shards import SLOTS, Fleet, Slot, slots
from headrace.engine.statement import Statement, ask
from headrace.errors import InvalidInput, NotStored
from headrace.model.pauses import NO_JITTER, Pauses
from headrace.model.shards import Left, Moved, ShardState

FIRST_PAUSE, LONGEST_PAUSE = 0.01, 2.0  # seconds


def give_slots(given: list[int], recipient: int, actor: str) -> Statement[str]:
    return Statement(
        "select headrace.give_slots(%s::int[], %s::int, %s)::pg_catalog.text",
        (given, recipient, actor),
        lambda rows: rows[0][0],
    )


def accept_slots(giver: int, given: str, actor: str) -> Statement[int]:
    return Statement(
        "select headrace.accept_slots(%s::int, %s::pg_catalog.jsonb, %s)",
        (giver, given, actor),
        lambda rows: rows[0][0],
    )


def slots_left(given: list[int], known: list[str] | None) -> Statement[Left]:
    return Statement(
        "select waits_for, waiting, held, delayed, dead, knows_keys "
        "from headrace.slots_left(%s::int[], %s::pg_catalog.text[])",
        (given, known),
        lambda rows: Left(*rows[0]),
        has_its_own_time=True,
    )


def open_slots(
    arrived: list[int], known: list[str] | None, asks: bool, actor: str
) -> Statement[list[str] | None]:
    return Statement(
        "select headrace.open_slots(%s::int[], %s::pg_catalog.text[], %s::boolean, %s)",
        (arrived, known, asks, actor),
        lambda rows: rows[0][0],
        has_its_own_time=True,
    )


def told(fleet: Fleet) -> Plan[dict[int, dict[int, Slot]]]:
    """Asks each shard for its row of each slot."""
    if fleet.absent:
        raise absent(fleet, "it may be the home of keys")
    replies: list[Reply] = yield [Ask(n, lambda verbs: ask(slots())) for n in fleet.numbers]
    for reply in replies:
        if reply.error is not None:
            raise reply.error
        fleet.homes.learn(reply.shard, reply.value)
    return {reply.shard: {slot.slot: slot for slot in reply.value} for reply in replies}


class _Move(NamedTuple):
    """Slots that go from one shard to another."""

    giver: int
    to: int
    slots: list[int]


def _find(known: Mapping[int, Mapping[int, Slot]], wanted: Iterable[int], to: int) -> list[_Move]:
    """The moves that bring slots to a shard, also those that were cut off before."""
    by: dict[int, list[int]] = defaultdict(list)
    for slot in wanted:
        rows = {shard: its[slot] for shard, its in known.items() if slot in its}
        best = max(rows.items(), key=lambda row: row[1].version, default=(0, _first(slot)))
        mine = rows.get(to, _first(slot))
        if best[1].home != to:
            by[best[1].home].append(slot)
        elif mine.version < best[1].version:  # given, and not accepted yet
            by[best[0]].append(slot)
        elif mine.origin is not None:
            by[mine.origin].append(slot)
    return [_Move(giver, to, found) for giver, found in by.items()]


def _first(slot: int) -> Slot:
    return Slot(slot, 0, 0, None, ())


Progress = Callable[[Moved], object]


class _Mover:
    def __init__(
        self, fleet: Fleet, actor: str, timeout: float | None, progress: Progress | None
    ) -> None:
        self.fleet = fleet
        self.actor = actor
        self.timeout = timeout
        self.progress = progress
        self._waited = 0.0

    def run(self, moves: list[_Move]) -> Plan[list[Moved]]:
        """Begin all of them, then end one after the other."""
        for move in moves:
            for number in (move.giver, move.to):
                if number not in self.fleet.shards:
                    raise NotStored(f"shard {number} was not named: no slot has moved")
        for move in moves:
            yield from self._begin(move)
        yield from told(self.fleet)
        ended = []
        for move in moves:
            ended.append((yield from self._end(move)))
        return ended

    def _begin(self, move: _Move) -> Plan[None]:
        given: str = yield from one(
            Ask(move.giver, lambda verbs: ask(give_slots(move.slots, move.to, self.actor)))
        )
        yield from one(Ask(move.to, lambda verbs: ask(accept_slots(move.giver, given, self.actor))))

    def _end(self, move: _Move) -> Plan[Moved]:
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE, jitter=NO_JITTER)
        known: list[str] | None = None
        while True:
            left: Left = yield from one(
                Ask(move.giver, lambda verbs, known=known: ask(slots_left(move.slots, known)))  # type: ignore[misc]
            )
            moved = Moved(tuple(move.slots), move.giver, move.to, left)
            if left.is_nothing:
                break
            if self.progress is not None:
                self.progress(moved)
            known = left.waits_for
            if self.timeout is not None and self._waited >= self.timeout:
                return moved
            pause = pauses.next()
            self._waited += pause
            yield pause
        yield from self._open(move, asks=bool(left.knows_keys))
        return msgspec.structs.replace(moved, is_over=True)

    def _open(self, move: _Move, *, asks: bool) -> Plan[None]:
        pauses = Pauses(FIRST_PAUSE, LONGEST_PAUSE, jitter=NO_JITTER)
        known: list[str] | None = None
        while True:
            known = yield from one(
                Ask(
                    move.to,
                    lambda verbs, known=known: ask(  # type: ignore[misc]
                        open_slots(move.slots, known, asks, self.actor)
                    ),
                )
            )
            if known == []:
                return
            if known is not None:
                yield pauses.next()


def move(
    fleet: Fleet,
    wanted: Collection[int],
    to: int,
    actor: str,
    timeout: float | None,
    progress: Progress | None,
) -> Plan[list[Moved]]:
    """Bring slots to a shard."""
    if to not in fleet.shards:
        raise InvalidInput(f"shard {to} is not one of {', '.join(map(str, fleet.numbers))}")
    if not all(isinstance(slot, int) and 0 <= slot < SLOTS for slot in wanted):
        raise InvalidInput(f"a slot is a number from 0 to {SLOTS - 1}")
    known = yield from told(fleet)
    mover = _Mover(fleet, actor, timeout, progress)
    return (yield from mover.run(_find(known, wanted, to)))


def spread(
    fleet: Fleet, actor: str, timeout: float | None, progress: Progress | None
) -> Plan[list[Moved]]:
    """Give each shard as many slots as the others, with as few moves as possible."""
    known = yield from told(fleet)
    homes = {slot.slot: slot.home for slot in fleet.homes}
    moves = []
    for to, wanted in _shares(homes, fleet.numbers).items():
        # also those that are on their way already
        moves += _find(known, [*wanted, *(s for s, home in homes.items() if home == to)], to)
    mover = _Mover(fleet, actor, timeout, progress)
    return (yield from mover.run(moves))


def _shares(homes: Mapping[int, int], numbers: list[int]) -> dict[int, list[int]]:
    """The slots that each shard is to get."""
    few, more = divmod(SLOTS, len(numbers))
    counts = Counter(homes.values())
    # those that have the most keep one more
    ranked = sorted(numbers, key=lambda number: -counts[number])
    due = {number: few + (rank < more) for rank, number in enumerate(ranked)}
    spare: list[int] = []
    kept: Counter[int] = Counter()
    for slot, home in homes.items():
        if home in due and kept[home] < due[home]:
            kept[home] += 1
        else:
            spare.append(slot)
    shares: dict[int, list[int]] = {number: [] for number in numbers}
    for number in numbers:
        need = due[number] - kept[number]
        shares[number], spare = spare[:need], spare[need:]
    return shares


def states(fleet: Fleet) -> Plan[list[ShardState]]:
    """The shards, and the homes of keys as they tell them."""
    replies: list[Reply] = yield [Ask(n, lambda verbs: ask(slots())) for n in fleet.numbers]
    for reply in replies:
        if reply.error is None:
            fleet.homes.learn(reply.shard, reply.value)
    answers: dict[int, Any] = {r.shard: r.value for r in replies if r.error is None}
    homes = Counter(slot.home for slot in fleet.homes)
    return [
        ShardState(
            number=number,
            server=fleet.server(number),
            answers=number in answers,
            slots=homes[number],
            arriving=sum(
                slot.home == number and slot.origin is not None for slot in answers.get(number, ())
            ),
        )
        for number in fleet.numbers
    ]
