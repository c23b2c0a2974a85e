"""The log of events, and the log of administration."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

Action: TypeAlias = Literal[
    "EMITTED",
    "PICKED",
    "STARTED",
    "COMPLETED",
    "COMPLETED_WITH_ERRORS",
    "FAILED",
    "RELEASED",
    "SNOOZED",
    "ABANDONED",
    "RESET",
    "CANCELLED",
    "SUPERSEDED",
    "DEAD_LETTERED",
    "REDRIVEN",
    "RERUN",
    "PURGED",
    "ERASED",
]
"""The actions in the log."""


class LogEntry(msgspec.Struct, frozen=True):
    """One thing that happened to an event."""

    id: int
    queue: str | None
    action: str
    worker_id: str | None
    attempt: int | None
    status_code: int | None
    error_message: str | None
    execution_time_ms: int | None
    created_at: datetime
    event_id: int
    due_at: datetime | None = None
    """When an event that was SNOOZED is ready again."""
    superseded_by: int | None = None
    """The event by which one was SUPERSEDED."""
    type: str | None = None
    """Of the event; told by `log_since`."""


def read_server(mark: str) -> str:
    """See `LogPage.server`."""
    cursor, start, *_ = mark.split(" ")
    return f"{cursor.partition('-')[0]} {start}"


class LogPage(msgspec.Struct, frozen=True):
    """A stretch of the log. The next one is `log_since(page.cursor, mark=page.mark)`."""

    entries: list[LogEntry]
    after: int
    """The number in `cursor`: the last entry's, or a later one that no other entry will have."""
    mark: str
    """For the next call: `cursor`, and the transactions that are still writing. It may be lost."""
    read_to: int
    """How far the log was read."""
    rewound_to: int | None = None
    """A standby was promoted, or a backup restored: entries after this number may be repeated."""
    missing: tuple[str, ...] = ()
    """Of several shards, those that did not answer."""

    @property
    def cursor(self) -> str:
        """The durable position to read on from; even a promotion or a restore skips nothing."""
        return self.mark.partition(" ")[0]

    @property
    def awaits_others(self) -> bool:
        """Whether transactions that are open may still write what comes next."""
        return len(self.mark.split(" ", 5)) > 5 and not self.mark.endswith(" ")

    @property
    def server(self) -> str:
        """The start of the server that wrote the page, and the life of its database: positions of one
        mean nothing in another."""
        return read_server(self.mark)


class AdminAction(msgspec.Struct, frozen=True):
    """An administrative action, its object and its actor."""

    id: int
    created_at: datetime
    namespace: str | None
    """None: the action concerned the whole installation, or the namespace has been deleted."""
    actor: str
    action: str
    """The name of the call that did it."""
    target: str | None
    """The object of the action: a queue, a schedule, an event …"""
    details: Mapping[str, Any]
