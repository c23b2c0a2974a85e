"""Saved states, checkpoints, recoveries, replays and imports."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from headrace.model.events import Event


class Imported(msgspec.Struct, frozen=True):
    """The result of an import."""

    is_new: bool
    """The queue did not exist: it was created with the settings of the file."""
    kept_ids: bool
    """The events kept their ids: this database had never held an event."""
    stored: int
    """Events that were new to this database."""
    ready: int
    delayed: int
    dead: int
    """Deliveries of this import, by state."""
    already: int
    """Events of the file that the queue already had, whatever their state: they stay the same."""


class QueueState(dict[str, Any]):
    """The state of a queue: the document, and how many events are unfinished in all."""

    def __init__(
        self,
        document: Mapping[str, Any],
        total: int,
        total_is_exact: bool = True,
        missing: tuple[str, ...] = (),
    ) -> None:
        super().__init__(document)
        self.total = total
        self.total_is_exact = total_is_exact
        """False: there are more than `total`."""
        self.missing = missing
        """Of several shards, those that did not answer."""


class LowWater(msgspec.Struct, frozen=True):
    """The progress of a queue, and what holds it back: all events up to `checkpoint_id` are
    finished, and none can be committed below it any more."""

    checkpoint_id: str | None
    """All events of the queue up to this one are finished; None: none yet."""
    event_count: int
    """How many events the queue has processed in all."""
    lag: int
    """How many events are unfinished."""
    lag_is_exact: bool
    """False: there are more than `lag`."""
    oldest_at: datetime | None
    """When the oldest unfinished event was published."""
    reason: str | None
    """The reason why the checkpoint does not advance: the oldest unfinished delivery, or an open
    transaction. None: nothing holds it back."""
    missing: tuple[str, ...] = ()
    """Of several shards, those that did not answer."""


class Checkpoint(msgspec.Struct, frozen=True):
    """The progress of a queue at some time: see LowWater. `checkpoint` returns the fields after
    `created_at`, too; they are not stored."""

    id: str
    queue_id: str
    checkpoint_id: str | None
    event_count: int
    created_at: datetime
    lag: int | None = None
    lag_is_exact: bool | None = None
    oldest_at: datetime | None = None
    reason: str | None = None


class Recovery(msgspec.Struct, frozen=True):
    """The events that a node recovered from a previous run that crashed."""

    node_id: str
    checkpoint_id: str | None
    """The progress of the queue."""
    events_recovered: int
    recovery_start_time: datetime
    recovery_complete_time: datetime | None
    status: Literal["running", "completed"]


class Recovered(msgspec.Struct, frozen=True):
    """The result of a call of `recover`."""

    deliveries: int
    state: Literal["done", "more", "busy", "alive"]


class ReplayPage(msgspec.Struct, frozen=True):
    """A stretch of the events that are read again."""

    events: list[Event]
    after: int
    """The last id that was read."""
    mark: str
    """For the next call."""
    done: bool
    """The end is reached, as it was at the first call."""
    held_by: str | None
    """The open transaction that may still publish before the end."""
    rewound_to: int | None = None
    """A standby was promoted, or a backup restored: events after this id may be repeated."""
