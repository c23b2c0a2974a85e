"""Times and lengths of time as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import typer

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_PART = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)([smhdw])")
_LONGEST = timedelta(days=36525)  # a century
_STEPS = ((86400, "d"), (3600, "h"), (60, "m"))


def duration(text: str | timedelta) -> timedelta:
    """90s, 30m, 12h, 1h30m, 7d, 2w; a number alone is of seconds. (What is one already is a default.)"""
    if isinstance(text, timedelta):
        return text
    words = text.strip()
    parts = _PART.findall(words if words[-1:].isalpha() else f"{words}s")
    whole = "".join(number + unit for number, unit in parts)
    if not parts or whole not in (words, f"{words}s"):
        raise typer.BadParameter(
            f"{text!r} is no length of time: it looks like 90s, 30m, 12h, 1h30m or 7d"
        )
    length = timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))
    if length > _LONGEST:
        raise typer.BadParameter(f"{text!r} is longer than a century")
    return length


def lease(text: str | timedelta) -> timedelta:
    length = duration(text)
    if not timedelta(seconds=0.1) <= length <= timedelta(days=7):
        raise typer.BadParameter(f"{text!r} is no lease: one lasts from 0.1 seconds to 7 days")
    return length


def moment(text: str) -> datetime:
    """A time in ISO 8601 (of this machine's zone, if it names none), or how long ago: 10m, 2h, 7d."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            return datetime.now(UTC) - duration(text)
        except typer.BadParameter:
            raise typer.BadParameter(
                f"{text!r} is no time: it looks like 2026-03-01T12:00 or 2026-03-01T12:00Z, "
                "or, for how long ago, 30m or 7d"
            ) from None
    return found if found.tzinfo else found.astimezone()


def instant(text: str) -> datetime:
    """A time in ISO 8601, of this machine's zone if it names none."""
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time: it looks like 2026-03-01T12:00 or 2026-03-01T12:00Z"
        ) from None
    return found if found.tzinfo else found.astimezone()


def length(duration: timedelta | float | None) -> str:
    """A length of time in a few characters: 250ms, 12s, 5m, 3h20m, 12d."""
    if duration is None:
        return "–"
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 and seconds % 1 else f"{int(seconds)}s"
    for place, (step, unit) in enumerate(_STEPS):
        if seconds >= step:
            count, rest = divmod(int(seconds), step)
            smaller = _STEPS[place + 1] if place < 2 else (1, "s")
            more = rest // smaller[0]
            return f"{count}{unit}" + (f"{more}{smaller[1]}" if more and count < 10 else "")
    raise AssertionError(seconds)


def ago(at: datetime | None, now: datetime | None = None) -> str:
    """How long ago it was, or in how long it will be."""
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
    """The time with its zone, and how long ago that is."""
    return "–" if at is None else f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z} ({ago(at)})"
