"""The shapes in which events travel: a key that is not known is absent, one that is known to be nothing is null."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.arguments import MAX_INT
from headrace.model import Claimed, Delivery, Event, LogEntry, NewEvent
from headrace.server.failures import Refusal
from headrace.stories import Attempt as StoryAttempt
from headrace.stories import Relative, Story

T = TypeVar("T")

Absent: TypeAlias = UnsetType
Count: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INT)]
Attempt: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_INT)]
Code: TypeAlias = Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)]
Lease: TypeAlias = Annotated[float, Meta(ge=0.1, le=7 * 24 * 3600)]
"""Seconds."""
WorkerId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=200)]
Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
# Decoded only when it is known to be short: a megabyte of [[],[],…] becomes 50 of lists.
RawObject: TypeAlias = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": ["object", "null"]})]
MAX_OBJECT = 512 * 1024  # bytes; in the database 64 KiB, there without blanks and escapes
Tags: TypeAlias = str | list[str]
"""With commas in between, or a list."""


@lru_cache(1024)
def moment(at: datetime) -> str:
    """To the second, in UTC."""
    return at.astimezone(UTC).isoformat(timespec="seconds")[:-6] + "Z"


def precise_moment(at: datetime | None) -> str | None:
    """To the millisecond, in UTC: for what is drawn."""
    if at is None:
        return None
    return at.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def moment_or_none(at: datetime | None) -> str | None:
    return None if at is None else moment(at)


def told(kind: type[T], record: msgspec.Struct, **instead: Any) -> T:
    """A record of ours in the shape in which it travels, field by field."""
    fields = {name: _plain(value) for name, value in msgspec.structs.asdict(record).items()}
    return kind(**{**fields, **instead})


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return moment(value)
        case timedelta():
            return value / timedelta(seconds=1)
        case tuple():
            return [_plain(one) for one in value]
    return value


def tag_list(tags: Tags | None) -> list[str] | None:
    """None for no tags at all. That a tag is empty, or has a comma in a list, is for the engine to say."""
    if not tags:
        return None
    return [tag.strip(" ") for tag in (tags.split(",") if isinstance(tags, str) else tags)]


def tag_string(tags: tuple[str, ...]) -> str:
    return ",".join(tags)


class NewEventBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event to publish."""

    title: str | None = None
    description: str | None = None
    tags: Tags | None = None
    payload: msgspec.Raw = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    type: str = "event"
    delay: float | None = None
    at: Moment | None = None
    priority: int | None = None
    key: str | None = None
    idempotency_key: str | None = None
    max_retries: int | None = None
    backoff: RawObject = None  # type: ignore[assignment]
    version: str | None = None
    source: dict[str, str] | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    producer: str | None = None
    headers: RawObject = None  # type: ignore[assignment]
    """Besides the payload, for whoever handles it."""

    def event(self, idempotency_key: str | None = None) -> NewEvent:
        """The event, with this key unless it says its own."""
        return NewEvent(
            self.type,
            msgspec.Raw(bytes(self.payload)),  # a copy: the body it is a part of may go
            tag_list(self.tags),
            self.delay,
            self.at,
            self.priority,
            self.key,
            idempotency_key if self.idempotency_key is None else self.idempotency_key,
            self.max_retries,
            _object("backoff", self.backoff),
            self.title,
            self.description,
            self.version,
            self.source,
            self.correlation_id,
            self.causation_id,
            self.trace_id,
            self.producer,
            _object("headers", self.headers),
        )


def _object(name: str, raw: msgspec.Raw | None) -> dict[str, Any] | None:
    """What was given as an object, if it was; the engine takes none that is longer."""
    if raw is None:
        return None
    if len(memoryview(raw)) > MAX_OBJECT:
        raise Refusal(
            400, "invalid_body", f"The {name} of an event have more than {MAX_OBJECT:,} bytes."
        )
    try:
        read: dict[str, Any] | None = msgspec.json.decode(raw, type=dict[str, Any] | None)
    except (msgspec.DecodeError, RecursionError) as error:
        said = f"The {name} of an event are wrong: {error}."
        raise Refusal(400, "invalid_body", said) from None
    return read


class LogBody(msgspec.Struct, frozen=True):
    """One thing that happened to an event."""

    id: int
    worker_id: str | Absent
    action: str
    status_code: int | Absent
    error_message: str | Absent
    execution_time_ms: int | Absent
    created_at: str


class DeliveryBody(msgspec.Struct, frozen=True):
    """Where an event stands in one queue."""

    queue: str
    status: str
    attempts: int
    retry_count: int
    crashes: int
    max_retries: int
    next_retry_at: str | None
    worker_id: str | None
    processing_started_at: str | None
    lease_expires_at: str | None
    updated_at: str


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What is told of an event on request."""

    type: str | Absent = UNSET
    attempts: int | Absent = UNSET
    crashes: int | Absent = UNSET
    """Leases that ran out under it and were charged to it; told anyway where there were some."""
    reason: str | Absent | None = UNSET
    """Why it is a dead letter; told anyway where it is one."""
    priority: int | Absent = UNSET
    key: str | Absent | None = UNSET
    worker_id: str | Absent | None = UNSET
    processing_started_at: str | Absent | None = UNSET
    lease_expires_at: str | Absent | None = UNSET
    version: str | Absent | None = UNSET
    source: dict[str, str] | Absent | None = UNSET
    correlation_id: str | Absent | None = UNSET
    causation_id: str | Absent | None = UNSET
    trace_id: str | Absent | None = UNSET
    producer: str | Absent | None = UNSET
    scheduled_task_id: str | Absent | None = UNSET
    scheduled_for: str | Absent | None = UNSET
    backoff: dict[str, Any] | Absent | None = UNSET
    headers: Mapping[str, Any] | Absent | None = UNSET


class AttemptBody(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker did with an event, from its claim to its end."""

    queue: str
    attempt: int
    worker_id: str | None
    picked_at: str
    """To the millisecond."""
    ended_at: str | None
    """Null: it is in work."""
    action: str | None
    """How it ended, in the log's words."""
    execution_time_ms: int | None
    """What the worker said, else how long it held the event."""
    error_message: str | None
    error_traceback: str | None
    """Where the error says more than its message."""


class RelativeBody(msgspec.Struct, frozen=True):
    """An event that another has to do with."""

    id: int
    type: str
    status: str | None
    created_at: str


class StoryBody(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an event, and what it has to do with."""

    attempts: list[AttemptBody]
    """The last hundred, in their order."""
    deliveries: list[DeliveryBody]
    caused_by: RelativeBody | None
    causes: list[RelativeBody]
    """What it caused, fifty at most."""
    same_correlation: list[RelativeBody]
    """What else belongs to the same correlation id, fifty at most."""


class EventBody(Details, frozen=True, kw_only=True):
    """An event, and where its delivery in the queue stands."""

    id: int
    title: str
    description: str | None
    tags: str
    status: str | None
    payload: Any
    retry_count: int
    max_retries: int
    next_retry_at: str | None
    created_at: str
    updated_at: str
    pressure: bool | Absent = UNSET
    deliveries: list[DeliveryBody] | Absent = UNSET
    logs: list[LogBody] | Absent = UNSET
    story: StoryBody | Absent = UNSET


class ListedEvent(Details, frozen=True, kw_only=True):
    """An event in a list."""

    id: int
    title: str
    status: str | None
    tags: str
    retry_count: int
    next_retry_at: str | Absent
    created_at: str
    updated_at: str
    payload: Any = UNSET


class EventList(msgspec.Struct, frozen=True):
    """Some of the events that a filter selects."""

    events: list[ListedEvent]
    total: int
    limit: int
    offset: int
    total_is_exact: bool | Absent = UNSET
    """False: there are more than `total`, or may be."""
    searched_to: int | Absent = UNSET
    """It has looked no further: more may be beyond this id; ask for what is `before` it, or, the oldest first, `after` it."""


class Subscribed(msgspec.Struct, frozen=True, kw_only=True):
    """An event that the worker now holds."""

    id: int
    title: str
    tags: str
    status: str
    payload: Any
    retry_count: int
    max_retries: int
    created_at: str
    attempt: int
    lease_expires_at: str
    lease_token: str
    """Proves the claim: keep it to yourself, and send it with the end and with heartbeats."""


class ClaimedBody(Subscribed, frozen=True, kw_only=True):
    """An event that the worker now holds, with what it came from."""

    type: str
    description: str | Absent
    version: str | Absent
    source: dict[str, str] | Absent
    correlation_id: str | Absent
    causation_id: str | Absent
    trace_id: str | Absent
    headers: dict[str, Any] | Absent


def event_body(event: Event, max_retries: int | None = None, *, details: bool = False) -> EventBody:
    """`max_retries`: of the queue, where the event itself does not know."""
    known = event.max_retries if event.max_retries is not None else max_retries
    return EventBody(
        id=event.id,
        title=event.title,
        description=event.description,
        tags=tag_string(event.tags),
        status=event.status,
        payload=event.payload,
        retry_count=event.retry_count,
        max_retries=known or 0,
        next_retry_at=moment_or_none(event.next_retry_at),
        created_at=moment(event.created_at),
        updated_at=moment(event.updated_at),
        pressure=event.pressure or UNSET,
        deliveries=UNSET
        if event.deliveries is None
        else [delivery_body(one) for one in event.deliveries],
        **(_details(event) if details else _troubles(event)),
    )


def listed_event(event: Event, *, details: bool, payload: bool) -> ListedEvent:
    return ListedEvent(
        id=event.id,
        title=event.title,
        status=event.status,
        tags=tag_string(event.tags),
        retry_count=event.retry_count,
        next_retry_at=moment_or_none(event.next_retry_at) or UNSET,
        created_at=moment(event.created_at),
        updated_at=moment(event.updated_at),
        payload=event.payload if payload else UNSET,
        **(_details(event) if details else _troubles(event)),
    )


def _troubles(event: Event) -> dict[str, Any]:
    """What the document's own body cannot say: that workers died of it, and why it is dead."""
    return {"crashes": event.crashes or UNSET, "reason": _known(event.reason)}


def _details(event: Event) -> dict[str, Any]:
    return {
        "type": event.type,
        "attempts": event.attempts,
        "crashes": event.crashes,
        "reason": event.reason,
        "priority": event.priority,
        "key": event.key,
        "worker_id": event.worker_id,
        "processing_started_at": moment_or_none(event.processing_started_at),
        "lease_expires_at": moment_or_none(event.lease_expires_at),
        "version": event.version,
        "source": event.source,
        "correlation_id": event.correlation_id,
        "causation_id": event.causation_id,
        "trace_id": event.trace_id,
        "producer": event.producer,
        "scheduled_task_id": event.scheduled_task_id,
        "scheduled_for": moment_or_none(event.scheduled_for),
        "backoff": event.backoff,
        "headers": event.headers,
    }


def delivery_body(delivery: Delivery) -> DeliveryBody:
    return DeliveryBody(
        delivery.queue,
        delivery.status,
        delivery.attempts,
        delivery.retry_count,
        delivery.crashes,
        delivery.max_retries,
        moment_or_none(delivery.next_retry_at),
        delivery.worker_id,
        moment_or_none(delivery.processing_started_at),
        moment_or_none(delivery.lease_expires_at),
        moment(delivery.updated_at),
    )


def log_body(entry: LogEntry) -> LogBody:
    return LogBody(
        entry.id,
        _known(entry.worker_id),
        entry.action,
        _known(entry.status_code),
        _known(entry.error_message),
        _known(entry.execution_time_ms),
        moment(entry.created_at),
    )


def subscribed(claimed: Claimed) -> Subscribed:
    return Subscribed(**_subscribed(claimed))


def claimed_body(claimed: Claimed) -> ClaimedBody:
    details = claimed.details
    return ClaimedBody(
        **_subscribed(claimed),
        type=claimed.type,
        **{name: details.get(name, UNSET) for name in _DESCRIBED},
    )


_DESCRIBED = (
    *("description", "version", "source"),
    *("correlation_id", "causation_id", "trace_id", "headers"),
)


def _subscribed(claimed: Claimed) -> dict[str, Any]:
    return {
        "id": claimed.id,
        "title": claimed.title,
        "tags": tag_string(claimed.tags),
        "status": "PROCESSING",
        "payload": claimed.payload,
        "retry_count": claimed.retry_count,
        "max_retries": claimed.max_retries,
        "created_at": moment(claimed.created_at),
        "attempt": claimed.attempt,
        "lease_expires_at": moment(claimed.lease_expires_at),
        "lease_token": claimed.lease_token,
    }


def _known(value: Any) -> Any:
    return UNSET if value is None else value


def _attempt_body(attempt: StoryAttempt) -> AttemptBody:
    times = {name: precise_moment(getattr(attempt, name)) for name in ("picked_at", "ended_at")}
    return told(AttemptBody, attempt, **times)


def story_body(story: Story) -> StoryBody:
    def relatives(events: Iterable[Relative]) -> list[RelativeBody]:
        return [told(RelativeBody, event) for event in events]

    return StoryBody(
        attempts=[_attempt_body(attempt) for attempt in story.attempts],
        deliveries=[delivery_body(delivery) for delivery in story.deliveries],
        caused_by=told(RelativeBody, story.caused_by) if story.caused_by else None,
        causes=relatives(story.causes),
        same_correlation=relatives(story.same_correlation),
    )
