"""Shards: several databases with one number line, and the homes of keys.

An event's id names its shard for ever: id % stride. A key belongs to one of 1,024 slots, and a slot
has a home, which moves rarely. Each shard knows what it owns and refuses the rest, so what is known
here may be old: the refusal corrects it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import count
from random import randrange
from typing import NamedTuple

from headrace.engine.caller import Caller
from headrace.engine.database import Shard
from headrace.engine.encoding import Batch
from headrace.engine.publish import Published
from headrace.engine.statement import Statement, Steps, ask
from headrace.errors import ShardMismatch, WrongShard
from headrace.model import instant

SLOTS = 1024


def slot_of(namespace: str, key: str) -> int:
    """The slot of a key, as the engine computes it."""
    digest = sha256(f"{namespace}/{key}".encode()).digest()
    return digest[0] % 4 * 256 + digest[1]


def check(name: str, known: Shard, found: Shard) -> None:
    """Refuse a server that is not the shard it was. Raises ShardMismatch."""
    if found != known:
        raise ShardMismatch(
            f"the server {name} was shard {known.number} of {known.stride} (database "
            f"{known.identity}), and now it is shard {found.number} of {found.stride} (database "
            f"{found.identity})"
        )


class Slot(NamedTuple):
    """What a shard knows of a slot."""

    slot: int
    home: int
    version: int
    origin: int | None
    """The home before, while it has deliveries of the slot; the new one hands none out."""
    ask: tuple[int, ...]
    """The shards to ask about an idempotency key first."""


def slots() -> Statement[list[Slot]]:
    return Statement(
        "select slot, home, version, origin, ask from headrace.slots()",
        (),
        lambda rows: [Slot(a, b, c, d, tuple(ask)) for a, b, c, d, ask in rows],
    )


def shard_of(namespace: str, key: str) -> Statement[int]:
    return Statement("select headrace.shard_of(%s, %s)", (namespace, key), lambda rows: rows[0][0])


def published_before(namespace: str, batch: Batch) -> Statement[tuple[list[int | None], Published]]:
    """The ids of those events of a batch that were published under their idempotency keys, and the
    answer that the first one got."""

    def read(
        rows: list[tuple[list[int | None], bytes | None]],
    ) -> tuple[list[int | None], Published]:
        ((ids, created_at),) = rows
        known = [id for id in ids[:1] if id is not None]
        told = instant(created_at or bytes(8))
        return ids, Published(known, told, frozenset({0}), False)

    return Statement(
        "select ids, pg_catalog.timestamptz_send(created_at) "
        "from headrace.published_before(%s, %s::pg_catalog.jsonb)",
        (namespace, batch.document),
        read,
    )


class Homes:
    """The homes of slots, as far as the shards have told."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[tuple[int, bool], Slot]] = {}
        self.fresh_until = 0.0
        """When the shards are asked again who has to be asked about idempotency keys."""

    def learn(self, teller: int, told: Iterable[Slot]) -> None:
        """Of two shards that differ the later version is right; of one version the home itself knows
        the most."""
        for slot in told:
            rank = (slot.version, teller == slot.home)
            known = self._known.get(slot.slot)
            if known is None or rank >= known[0]:
                self._known[slot.slot] = rank, slot

    def correct(self, teller: int, refusal: WrongShard) -> bool:
        """Learn from a refusal; False: it tells nothing new."""
        if refusal.slot is None or refusal.home is None or refusal.version is None:
            return False
        before = self.of_slot(refusal.slot)
        told = Slot(refusal.slot, refusal.home, refusal.version, None, refusal.ask)
        self.learn(teller, [told])
        after = self.of_slot(refusal.slot)
        return (after.home, after.ask) != (before.home, before.ask)

    def of_slot(self, slot: int) -> Slot:
        known = self._known.get(slot)
        return Slot(slot, 0, 0, None, ()) if known is None else known[1]

    def of(self, namespace: str, key: str) -> Slot:
        return self.of_slot(slot_of(namespace, key))

    def __iter__(self) -> Iterator[Slot]:
        return (self.of_slot(slot) for slot in range(SLOTS))


class Fleet:
    """The shards that a client knows, and which of them answer."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        """Of the servers that were named, without passwords."""
        self.homes = Homes()
        self.shards: dict[int, Shard] = {}
        self.down: set[int] = set()
        self._named: dict[int, str] = {}
        self._turn = count(randrange(SLOTS))

    def admit(self, name: str, shard: Shard) -> None:
        """Raises ShardMismatch for a server that does not fit the others."""
        if shard.stride == 1:
            raise ShardMismatch(
                f"the server {name} is no shard: `headrace migrate --stride 64` makes it shard 0 of "
                "at most 64"
            )
        for number, other in self.shards.items():
            if other.stride != shard.stride:
                raise ShardMismatch(
                    f"the servers {self._named[number]} and {name} are of different strides: "
                    f"{other.stride} and {shard.stride}"
                )
        if shard.number in self.shards:
            raise ShardMismatch(
                f"the servers {self._named[shard.number]} and {name} are both shard {shard.number}"
            )
        for number, other in self.shards.items():
            if other.identity == shard.identity:
                raise ShardMismatch(
                    f"the servers {self._named[number]} and {name} are copies of one database"
                )

    def join(self, name: str, shard: Shard) -> None:
        self.shards[shard.number], self._named[shard.number] = shard, name

    @property
    def numbers(self) -> list[int]:
        return sorted(self.shards)

    @property
    def up(self) -> list[int]:
        """The shards that answered lately, else all of them."""
        return [number for number in self.numbers if number not in self.down] or self.numbers

    def in_turn(self) -> list[int]:
        """All that answer, each time beginning with another one."""
        up = self.up
        first = next(self._turn) % len(up)
        return up[first:] + up[:first]

    def owner(self, id: int) -> int | None:
        """The shard of an event, claim or entry; None: no shard that is known."""
        (number,) = self.owners((id,))
        return number if number in self.shards else None

    def owners(self, ids: Iterable[int]) -> set[int]:
        """The shards of these, known or not."""
        stride = next(iter(self.shards.values())).stride
        zero = self.shards.get(0)
        mark = -1 if zero is None else zero.mark
        return {0 if id <= mark else id % stride for id in ids}

    def name(self, number: int) -> str:
        return (
            f"shard {number} ({self._named[number]})"
            if number in self._named
            else f"shard {number}"
        )

    def server(self, number: int) -> str:
        return self._named[number]

    @property
    def absent(self) -> list[str]:
        """The servers that have not answered since this client was opened."""
        named = set(self._named.values())
        return [name for name in self.names if name not in named]


class Cursor:
    """A place on every shard, as one opaque text: `shard~place,shard~place`."""

    SEPARATORS = (",", "~")

    def __init__(self, places: dict[int, str] | None = None) -> None:
        self.places = places or {}

    @classmethod
    def read(cls, text: str) -> Cursor | None:
        """None: it is not one."""
        places: dict[int, str] = {}
        for part in text.split(","):
            shard, mark, place = part.partition("~")
            if not mark or not shard.isascii() or not shard.isdigit() or len(shard) > 4:
                return None
            places[int(shard)] = place
        return cls(places)

    def __str__(self) -> str:
        return ",".join(f"{shard}~{place}" for shard, place in sorted(self.places.items()))


class SlotVerbs(Caller):
    """Verbs about the homes of keys."""

    def shard_of(self, key: str) -> Steps[int]:
        """The shard that stores this namespace's events with a key: the ordering key, or else the
        idempotency key. Where a transaction of yours publishes with the key, it belongs into that
        database. 0 in a database that is not one of several."""
        return ask(shard_of(self.namespace, key))
