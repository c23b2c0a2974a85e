"""The handlers that are registered with a node, and which of them an event is for."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from itertools import combinations

from headrace.errors import InvalidInput
from headrace.model import Claimed
from headrace.model.patterns import overlap
from headrace.node.claim.lane import Lane, lanes_of
from headrace.node.handler.handler import Handler
from headrace.node.handler.layer import Layer
from headrace.node.handler.surroundings import Surroundings

MAX_TYPES = 1_000  # of one node: what a filter and the table of nodes take
REMEMBERED = 10_000  # pairs of type and tags


class Handlers:
    """The handlers of a node, in the order in which they were registered."""

    def __init__(self, *, share_transaction: bool = False) -> None:
        self._share_transaction = share_transaction
        self._all: list[Handler] = []
        self._bare: list[Handler] = []  # without what is around them
        self.surroundings = Surroundings()
        self._known: dict[tuple[str, tuple[str, ...]], tuple[Handler, ...]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._all)

    def add(self, handler: Handler) -> Handler:
        """Register a handler; the one returned has a name of its own."""
        if len({*self.types, *handler.patterns}) > MAX_TYPES:
            raise InvalidInput(
                f"a node handles at most {MAX_TYPES} types: use patterns with asterisks"
            )
        bare = dataclasses.replace(handler, name=self._name(handler.name))
        handler = self.surroundings.within(bare)
        for other in self._all:
            self._check_together(other, handler)
        self._bare.append(bare)
        self._all.append(handler)
        self._known = {}
        return handler

    def surround(self, layer: Layer) -> None:
        """Put something around the handlers, also around those that are registered already."""
        surroundings = self.surroundings.plus(layer)
        handlers = [surroundings.within(bare) for bare in self._bare]
        for one, other in combinations(handlers, 2):
            self._check_together(one, other)
        self.surroundings = surroundings
        self._all = handlers
        self._known = {}

    def _check_together(self, one: Handler, other: Handler) -> None:
        """Refuse what cannot be done for one event."""
        is_one_of_batches = one.batch or other.batch
        share = self._share_transaction and one.wants_connection and other.wants_connection
        are_two_kinds = share and one.is_async != other.is_async
        if not (is_one_of_batches or are_two_kinds) or not _overlap(one, other):
            return
        raise InvalidInput(
            f"an event may be for {one.name} and for {other.name}, and "
            + (
                "one of them takes batches: a type that is handled in batches has one handler"
                if is_one_of_batches
                else (
                    "both ask for its one connection, one as an async and one as a plain "
                    "function: make them alike"
                )
            )
        )

    def _name(self, wanted: str) -> str:
        taken = {handler.name for handler in self._all}
        if wanted not in taken:
            return wanted
        return next(
            name for n in range(2, len(taken) + 3) if (name := f"{wanted}#{n}") not in taken
        )

    def of(self, claimed: Claimed) -> tuple[Handler, ...]:
        """The handlers of an event; a function that was registered for it twice is called once."""
        key = (claimed.type, claimed.tags)
        found = self._known.get(key)
        return self._find(key) if found is None else found

    def _find(self, key: tuple[str, tuple[str, ...]]) -> tuple[Handler, ...]:
        if len(self._known) >= REMEMBERED:
            self._known = {}
        known = (
            self._known
        )  # before the look at all of them: one may be added meanwhile, from another thread
        found: list[Handler] = []
        for handler in self._all:
            if handler.matches(*key) and not any(_same(handler, one) for one in found):
                found.append(handler)
        known[key] = tuple(found)
        return known[key]

    @property
    def types(self) -> tuple[str, ...]:
        """The types that the node handles, as it registers them."""
        return tuple(sorted({pattern for handler in self._all for pattern in handler.patterns}))

    def lanes(self) -> tuple[Lane, ...]:
        return lanes_of(self._all)


def _same(one: Handler, other: Handler) -> bool:
    """Whether both call the same function: Python makes a new method object at every access."""
    a, b = one.function, other.function
    if inspect.ismethod(a) and inspect.ismethod(b):
        return a.__func__ is b.__func__ and a.__self__ is b.__self__
    return a is b


def _overlap(one: Handler, other: Handler) -> bool:
    return any(overlap(a, b) for a in one.patterns for b in other.patterns)
