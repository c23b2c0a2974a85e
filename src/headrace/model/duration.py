"""Durations in a few characters: 250ms, 12s, 5m, 3h20m, 12d."""

from __future__ import annotations

from datetime import timedelta

_STEPS = ((86400, "d"), (3600, "h"), (60, "m"))


def duration_text(duration: timedelta | float) -> str:
    """A duration, given as a timedelta or in seconds."""
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
