"""Lanes: the groups of handlers for which a node claims together.

A node that claims an event must be able to run all its handlers, so handlers whose types may meet
share a lane. Otherwise lanes are separate where they must be: events for a handler that asks for
the connection are claimed one by one, and a handler with a concurrency of its own, or with batches,
must not wait for other handlers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headrace.model.patterns import overlap

Filter: TypeAlias = tuple[tuple[str, ...] | None, bool]
"""Tags, and whether all of them are meant."""


class Handled(Protocol):
    """A handler, as lanes see it."""

    @property
    def patterns(self) -> tuple[str, ...]: ...
    @property
    def tags(self) -> tuple[str, ...] | None: ...
    @property
    def all_tags(self) -> bool: ...
    @property
    def wants_connection(self) -> bool: ...
    @property
    def concurrency(self) -> int | None: ...
    @property
    def batch(self) -> int: ...


@dataclass(frozen=True)
class Lane:
    """A filter to claim by, and how what it gives is run."""

    types: tuple[str, ...] | None
    """None: everything."""
    tags: tuple[str, ...] | None
    all_tags: bool
    each: bool
    """They are claimed one by one: some handler asks for the connection."""
    concurrency: int | None
    batch: int


def lanes_of(handlers: Sequence[Handled]) -> tuple[Lane, ...]:
    by_filter: defaultdict[Filter, list[Handled]] = defaultdict(list)
    for handler in handlers:
        by_filter[handler.tags, handler.all_tags].append(handler)
    transactional = [
        pattern for one in handlers if one.wants_connection for pattern in one.patterns
    ]
    return tuple(
        lane for same in by_filter.values() for lane in _lanes(_merged(same), transactional)
    )


def _lanes(groups: Iterable[list[Handled]], transactional: Sequence[str]) -> Iterable[Lane]:
    shared: defaultdict[bool, list[Handled]] = defaultdict(list)
    for group in groups:
        # Also where it is a handler with other tags that asks: the event may have those too.
        each = _meet([pattern for one in group for pattern in one.patterns], transactional)
        if any(one.concurrency or one.batch for one in group):
            yield _lane(group, each)
        else:
            shared[each] += group
    yield from (_lane(group, each) for each, group in shared.items())


def _lane(group: Sequence[Handled], each: bool) -> Lane:
    types = tuple(sorted({pattern for one in group for pattern in one.patterns}))
    return Lane(
        None if "*" in types else types,
        group[0].tags,
        group[0].all_tags,
        each,
        min((one.concurrency for one in group if one.concurrency), default=None),
        max(one.batch for one in group),
    )


def _merged(handlers: Iterable[Handled]) -> list[list[Handled]]:
    """Groups of handlers, no two of which may meet in one type."""
    groups: list[list[Handled]] = []
    for handler in handlers:
        met = [
            group for group in groups if any(_meet(handler.patterns, one.patterns) for one in group)
        ]
        groups = [group for group in groups if group not in met]
        groups.append([*(one for group in met for one in group), handler])
    return groups


def _meet(some: Sequence[str], others: Sequence[str]) -> bool:
    return any(overlap(one, other) for one in some for other in others)
