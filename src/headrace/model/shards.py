"""Replies of several shards, merged; the state of shards and of moves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

T = TypeVar("T")


class Merged(list[T]):
    """A list merged from the replies of several shards. It is a list in every other way."""

    def __init__(
        self, items: Iterable[T] = (), missing: tuple[str, ...] = (), cursor: str | None = None
    ) -> None:
        super().__init__(items)
        self.missing = missing
        """The shards that did not answer; their items are not in the list."""
        self.cursor = cursor
        """The cursor of the next page, in the place of an id (`before`); None: there is none."""


class ShardState(msgspec.Struct, frozen=True):
    """A shard, and how many slots of keys have their home there."""

    number: int
    server: str
    answers: bool
    slots: int
    """Of 1,024."""
    arriving: int
    """Slots among them whose deliveries wait until the previous home has none left."""


class Left(msgspec.Struct, frozen=True):
    """Deliveries and transactions that are left on the previous home of slots."""

    waits_for: list[str]
    """Transactions that may still publish there."""
    waiting: int
    held: int
    delayed: int
    dead: int
    """Dead letters stay, and keep nothing waiting."""
    knows_keys: bool | None

    @property
    def is_nothing(self) -> bool:
        return not (self.waits_for or self.waiting or self.held or self.delayed)


class Moved(msgspec.Struct, frozen=True):
    """Slots that go from one shard to another."""

    slots: tuple[int, ...]
    giver: int
    to: int
    left: Left
    is_over: bool = False
    """False: the new home stores events with their keys and does not hand them out yet, because of
    what is left on the old one."""
