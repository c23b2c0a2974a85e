"""Limits of a queue: of what is in progress at once, and of what starts in a time."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypeAlias

import msgspec

LimitScope: TypeAlias = Literal["queue", "type", "tag", "key"]


class Limit(msgspec.Struct, frozen=True, omit_defaults=True):
    """A limit of a queue: at most `at_once` events of a group in progress, or at most `rate` starts
    in `per` seconds, or both."""

    scope: LimitScope
    """queue: all events are a group; type, tag: those with a type or tag; key: each ordering key is
    one."""
    match: str | None = None
    """A tag, or a type that may hold asterisks: one group."""
    prefix: str | None = None
    """Each tag or type that begins with this is a group of its own."""
    at_once: int | None = None
    rate: int | None = None
    per: float | None = None
    """Seconds."""
    burst: int | None = None
    """How many starts more than the rate may come at once."""


class LimitedGroup(msgspec.Struct, frozen=True):
    """A group of a queue that has a limit, and what it has in progress and waiting."""

    scope: LimitScope
    name: str
    """The type, pattern, tag or key; empty: the whole queue."""
    at_once: int | None
    in_progress: int | None
    """None: the limit is only a rate."""
    rate: int | None
    per: float | None
    """Seconds."""
    burst: int | None
    room: int
    """How many may start now."""
    next_at: datetime | None
    """When the rate lets the next one start; None: now, or when one of them ends."""
    waiting: int
    """How many wait for room; counted up to about 1,000 for each type and tags."""
    waiting_since: datetime | None
