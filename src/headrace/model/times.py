"""Durations, instants and stored JSON, as PostgreSQL gives them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import msgspec

Duration: TypeAlias = float | timedelta
"""A number of seconds, or a timedelta."""

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)

_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

_decode = msgspec.json.Decoder().decode


def told(stored: str | bytes) -> Any:
    """A stored JSON value. An unreadable one becomes a note that says so, as by the engine's
    `_readable_json`: it does not spoil the list that it is in."""
    try:
        return _decode(stored)
    except (msgspec.DecodeError, RecursionError) as error:
        return {"unreadable": str(error)}


def told_details(stored: str | bytes | None) -> dict[str, Any]:
    """An event's details, by their names. Unreadable details become a note among the headers."""
    details = told(stored) if stored else {}
    if not isinstance(details, dict):
        details = {"unreadable": "it is not an object"}
    if "unreadable" in details:
        return {"headers": {"unreadable": details["unreadable"]}}
    return details


def said_time(details: Mapping[str, Any], name: str) -> datetime | None:
    """The time that an event's details have as text. None if the text is not a time: a publisher
    may have sent any text."""
    try:
        return datetime.fromisoformat(details[name]).astimezone(UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def instant(raw: bytes) -> datetime:
    """A time as PostgreSQL sends it: microseconds since 2000, in UTC, in any session's time zone.

    A time beyond Python's years (infinity too) becomes the nearest that Python can represent.
    """
    microseconds = int.from_bytes(raw, "big", signed=True)
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST if microseconds > 0 else _FIRST
