"""Events, as they are published and as they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, TypeAlias

import msgspec

from headrace.model.backoff import Backoff
from headrace.model.times import Duration

Status: TypeAlias = Literal[
    "PENDING", "PROCESSING", "COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "CANCELLED"
]


class NewEvent(msgspec.Struct, frozen=True):
    """An event to publish, with the arguments of `publish`; None means the default."""

    type: str = "event"
    payload: Any = None
    tags: Sequence[str] | None = None
    delay: Duration | None = None
    at: datetime | None = None
    priority: int | None = None
    key: str | None = None
    idempotency_key: str | None = None
    max_retries: int | None = None
    backoff: Backoff | None = None
    title: str | None = None
    description: str | None = None
    version: str | None = None
    source: Mapping[str, str] | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    producer: str | None = None
    headers: Mapping[str, Any] | None = None
    unique: str | None = None
    debounce: str | None = None
    settle: Duration | None = None
    at_latest: Duration | None = None
    max_attempts: int | None = None
    """Another name for max_retries."""


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """The descriptive fields of an event, beside its payload. A new field of this kind begins here:
    events and dead letters inherit it, and DescribedByDetails has a property for it."""

    description: str | None = None
    version: str | None = None
    source: Mapping[str, str] | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    producer: str | None = None
    headers: Mapping[str, Any] | None = None
    """Data for the handlers, beside the payload; Headrace does not use it."""
    unique: str | None = None
    """Its unique key: no other event is published with it while this one is unfinished."""
    debounce: str | None = None
    """Its debounce key: it has superseded the event of this key that waited, and the next supersedes it."""


class DescribedByDetails:
    """As Described, of a claim: its fields are read from what is stored only when they are asked for."""

    __slots__ = ()

    @property
    def details(self) -> dict[str, Any]:
        raise NotImplementedError

    @property
    def description(self) -> str | None:
        return self.details.get("description")

    @property
    def version(self) -> str | None:
        return self.details.get("version")

    @property
    def source(self) -> dict[str, str] | None:
        return self.details.get("source")

    @property
    def correlation_id(self) -> str | None:
        return self.details.get("correlation_id")

    @property
    def causation_id(self) -> str | None:
        return self.details.get("causation_id")

    @property
    def trace_id(self) -> str | None:
        return self.details.get("trace_id")

    @property
    def producer(self) -> str | None:
        return self.details.get("producer")

    @property
    def headers(self) -> dict[str, Any] | None:
        return self.details.get("headers")

    @property
    def unique(self) -> str | None:
        return self.details.get("unique")

    @property
    def debounce(self) -> str | None:
        return self.details.get("debounce")


class Event(Described, frozen=True, kw_only=True):
    """An event, and where its delivery in a queue stood when it was looked at."""

    id: int
    namespace: str = "default"
    type: str
    tags: tuple[str, ...] = ()
    payload: Any
    """None in a list that was not asked for payloads."""
    status: Status | None
    """None: it has no delivery in this queue, or it was published before, see `repeated`."""
    attempts: int = 0
    retry_count: int = 0
    crashes: int = 0
    max_retries: int | None = None
    """None from `publish`, for an event without a limit of its own: then it is the queue's."""
    priority: int = 5
    next_retry_at: datetime | None = None
    worker_id: str | None = None
    processing_started_at: datetime | None = None
    lease_expires_at: datetime | None = None
    created_at: datetime
    updated_at: datetime
    title: str
    scheduled_task_id: str | None = None
    """The schedule that fired it; `scheduled_for` is the instant, None for one that was run by hand."""
    scheduled_for: datetime | None = None
    emitted_at: datetime | None = None
    """By its sender's clock, where an envelope said so: see docs/pgmq.md. `created_at` is the database's."""
    backoff: Mapping[str, Any] | None = None
    key: str | None = None
    reason: str | None = None
    """Why it is a dead letter; None: it is none."""
    snoozes: int = 0
    """How often it was snoozed since it was published, redriven or run again."""
    superseded_by: int | None = None
    """The event by which it was superseded, which is CANCELLED therefore; None: it was not. See `debounce`."""
    repeated: bool = False
    """From `publish`: the idempotency key was used before, or an unfinished event holds the unique key, so this is
    that event's id; where it stands was not asked."""
    deliveries: tuple[Delivery, ...] | None = None
    """In each queue it was delivered to, when they were asked for."""
    pressure: bool = False
    """From `publish`: a queue that takes it has reached its high watermark, or its limit."""


class Ids(list[int]):
    """The ids of events that were published together, in their order."""

    def __init__(self, ids: Iterable[int] = (), pressure: bool = False) -> None:
        super().__init__(ids)
        self.pressure = pressure
        """A queue that takes one of them has reached its high watermark, or its limit."""


class Delivery(msgspec.Struct, frozen=True):
    """The status of an event in one of its queues."""

    queue: str
    status: Status
    attempts: int
    retry_count: int
    crashes: int
    max_retries: int
    next_retry_at: datetime | None
    worker_id: str | None
    processing_started_at: datetime | None
    lease_expires_at: datetime | None
    updated_at: datetime
    snoozes: int = 0
    """As in Event."""
    superseded_by: int | None = None


class EventPage(msgspec.Struct, frozen=True):
    """Some of the events that a filter selects, and how many it selects in all."""

    events: list[Event]
    total: int
    total_is_exact: bool = True
    """False: there are more than `total`, or may be."""
    searched_to: int | None = None
    """With `look_at`, where that was not all: more may be beyond this id. To go on, ask for what is `before` it, or, the oldest first, `after` it."""
    cursor: str | None = None
    """Of several shards: where to page on, as `before` or, the oldest first, `after`; None: this is all."""
    missing: tuple[str, ...] = ()
    """Of several shards, those that did not answer."""


Publishable: TypeAlias = NewEvent | Mapping[str, Any] | tuple[str, Any]

Publishables: TypeAlias = Iterable[Publishable]
