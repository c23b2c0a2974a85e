"""The history of an event: its attempts, read from the log, and its related events."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

import msgspec
from msgspec.structs import replace

from headrace.model import Delivery, Event, LogEntry

MOST = 100  # attempts, the last ones
RELATIVES = 50  # of a kind

_ENDS = {
    *("COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED"),
    *("RELEASED", "SNOOZED", "ABANDONED", "CANCELLED", "RESET"),
}
_REPORTED = {"COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED"}


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at an event, from its claim to its end."""

    queue: str
    attempt: int
    worker_id: str | None
    picked_at: datetime
    ended_at: datetime | None = None
    """None: the attempt is in progress."""
    action: str | None = None
    """How it ended: an action of the log."""
    execution_time_ms: int | None = None
    """As the worker reported it, else how long it held the event."""
    error_message: str | None = None
    error_traceback: str | None = None
    """The full error, if it has more than its message."""


class Relative(msgspec.Struct, frozen=True):
    """A related event."""

    id: int
    type: str
    status: str | None
    created_at: datetime


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its attempts, its deliveries and its related events."""

    event: Event
    attempts: tuple[Attempt, ...]
    """The last 100, in their order."""
    deliveries: tuple[Delivery, ...]
    caused_by: Relative | None
    causes: tuple[Relative, ...]
    """Events that it caused, at most 50."""
    same_correlation: tuple[Relative, ...]
    """Other events with the same correlation id, at most 50."""


def attempts(log: Iterable[LogEntry]) -> tuple[Attempt, ...]:
    """The attempts in the log of an event."""
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
    """The first end in the log, or that of a worker that finished after its lease had expired."""
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
    """The most useful line of an error: the exception under a Python traceback, else the first."""
    lines = [line for line in error.splitlines() if line.strip()]
    places = [n for n, line in enumerate(lines) if line.startswith('  File "')]
    below = lines[places[-1] + 1 :] if places else lines
    return next((line for line in below if not line.startswith(" ")), "").strip()
