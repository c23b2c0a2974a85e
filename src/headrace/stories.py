"""An event's whole story: its attempts, put together from the log, and the events it has to do with."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from headrace.model import Delivery, Event, LogEntry

MOST = 100  # attempts that are told, the last ones
RELATIVES = 50  # of a kind

_ENDS = {
    *("COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED"),
    *("RELEASED", "ABANDONED", "CANCELLED", "RESET"),
}
_REPORTED = {"COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED"}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker did with an event, from its claim to its end."""

    queue: str
    attempt: int
    worker_id: str | None
    picked_at: datetime
    ended_at: datetime | None = None
    """None: it is in work."""
    action: str | None = None
    """How it ended, in the log's words."""
    execution_time_ms: int | None = None
    """What the worker said, else how long it held the event."""
    error_message: str | None = None
    error_traceback: str | None = None
    """Where the error says more than its message."""


class Relative(msgspec.Struct, frozen=True):
    """An event that another has to do with."""

    id: int
    type: str
    status: str | None
    created_at: datetime


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """All there is to know about an event."""

    event: Event
    attempts: tuple[Attempt, ...]
    """The last hundred, in their order."""
    deliveries: tuple[Delivery, ...]
    caused_by: Relative | None
    causes: tuple[Relative, ...]
    """What it caused, fifty at most."""
    same_correlation: tuple[Relative, ...]
    """What else belongs to the same correlation id, fifty at most."""


def attempts(log: Iterable[LogEntry]) -> tuple[Attempt, ...]:
    """What the log of an event says about its attempts."""
    found: dict[tuple[str, int], Attempt] = {}
    for entry in log:
        if entry.queue is None or entry.attempt is None:
            continue
        place = (entry.queue, entry.attempt)
        if entry.action == "PICKED":
            found[place] = Attempt(
                queue=entry.queue,
                attempt=entry.attempt,
                worker_id=entry.worker_id,
                picked_at=entry.created_at,
            )
        elif entry.action in _ENDS and place in found and _is_its_end(found[place], entry):
            found[place] = _ended(found[place], entry)
    return tuple(sorted(found.values(), key=lambda one: (one.picked_at, one.attempt))[-MOST:])


def _is_its_end(attempt: Attempt, entry: LogEntry) -> bool:
    """The first that the log tells, or that of a worker who finished it after its lease had run out."""
    if attempt.action == "ABANDONED" and entry.action in _REPORTED:
        return attempt.ended_at is not None and entry.created_at > attempt.ended_at
    return attempt.action is None


def _ended(attempt: Attempt, end: LogEntry) -> Attempt:
    ms = end.execution_time_ms
    if ms is None:
        ms = round((end.created_at - attempt.picked_at).total_seconds() * 1000)
    error = (end.error_message or "").strip()
    message = error_line(error)
    return replace(
        attempt,
        ended_at=end.created_at,
        action=end.action,
        execution_time_ms=ms,
        error_message=message or None,
        error_traceback=error if error != message else None,
    )


def error_line(error: str) -> str:
    """The line of an error that says most: the exception under a Python traceback, else the first."""
    lines = [line for line in error.splitlines() if line.strip()]
    places = [n for n, line in enumerate(lines) if line.startswith('  File "')]
    below = lines[places[-1] + 1 :] if places else lines
    return next((line for line in below if not line.startswith(" ")), "").strip()
