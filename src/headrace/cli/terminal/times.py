"""Times and durations as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

from headrace.model.duration import duration_text

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])")
_LONGEST = timedelta(days=36525)  # a century
_ISO = "2026-03-01T12:00 or 2026-03-01T12:00Z"


def duration(text: str | timedelta) -> timedelta:
    """90s, 30m, 12h, 1h30m, 7d, 2w; a plain number is in seconds. A timedelta is a default."""
    if isinstance(text, timedelta):
        return text
    words = text.strip()
    parts = _PART.findall(words if words[-1:].isalpha() else f"{words}s")
    whole = "".join(number + unit for number, unit in parts)
    if not parts or whole not in (words, f"{words}s"):
        raise typer.BadParameter(
            f"{text!r} is not a valid duration; write it as 90s, 30m, 12h, 1h30m or 7d"
        )
    length = timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    if length > _LONGEST:
        raise typer.BadParameter(f"{text!r} is longer than 100 years")
    return length


def lease(text: str | timedelta) -> timedelta:
    length = duration(text)
    if not timedelta(seconds=0.1) <= length <= timedelta(days=7):
        raise typer.BadParameter(
            f"{text!r} is not a valid lease; a lease lasts from 0.1 seconds to 7 days"
        )
    return length


def moment(text: str) -> datetime:
    """A time in ISO 8601 (in local time, if it names no zone), or how long ago: 10m, 2h, 7d."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            return datetime.now(UTC) - duration(text)
        except typer.BadParameter:
            raise typer.BadParameter(
                f"{text!r} is not a valid time; write it as {_ISO}, or how long ago: 30m or 7d"
            ) from None
    return found if found.tzinfo else found.astimezone()


def instant(text: str) -> datetime:
    """A time in ISO 8601, in local time if it names no zone."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a valid time; write it as {_ISO}") from None
    return found if found.tzinfo else found.astimezone()


def length(duration: timedelta | float | None) -> str:
    """A duration in a few characters: 250ms, 12s, 5m, 3h20m, 12d."""
    return "–" if duration is None else duration_text(duration)


def milliseconds(duration: float | None) -> str:
    """A duration that is given in milliseconds."""
    return "–" if duration is None else duration_text(duration / 1000)


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """How long ago a time was, or how far ahead it is."""
    if at is None:
        return "–"
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{length(int(seconds))} ago" if seconds > 0 else f"in {length(int(-seconds))}"


def exact(at: datetime | None) -> str:
    """The time on this machine's clock, to the second."""
    return "–" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def both(at: datetime | None) -> str:
    """The time with its zone, and how long ago it was."""
    return "–" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z} ({ago(at)})"
