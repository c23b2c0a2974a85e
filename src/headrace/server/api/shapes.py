"""The bodies in which events travel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import UNSET, Meta

from headrace.model import Claimed, Delivery, Described, Event, LogEntry, NewEvent, Reason
from headrace.model.story import Attempt, Relative, Story
from headrace.server.api.values import (
    Absent,
    Moment,
    Object,
    Tags,
    known,
    moment,
    moment_or_none,
    plain,
    precise_moment,
    shape_of,
    tag_list,
    tag_string,
    told,
)
from headrace.server.http.refusal import Refusal

# Decoded only when it is known to be short: a megabyte of [[],[],…] becomes 50 MB of lists.
RawObject: TypeAlias = Annotated[msgspec.Raw, Meta(extra_json_schema={"type": ["object", "null"]})]
MAX_OBJECT = 512 * 1024  # bytes; in the database 64 KiB, there without blanks and escapes


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
    """Data for the handler, beside the payload."""

    def event(self, idempotency_key: str | None = None) -> NewEvent:
        """The event, with this key unless it has its own."""
        return NewEvent(
            type=self.type,
            payload=msgspec.Raw(
                bytes(self.payload)
            ),  # a copy, so that the rest of the body can be freed
            tags=tag_list(self.tags),
            delay=self.delay,
            at=self.at,
            priority=self.priority,
            key=self.key,
            idempotency_key=idempotency_key
            if self.idempotency_key is None
            else self.idempotency_key,
            max_retries=self.max_retries,
            backoff=_object("backoff", self.backoff),
            title=self.title,
            description=self.description,
            version=self.version,
            source=self.source,
            correlation_id=self.correlation_id,
            causation_id=self.causation_id,
            trace_id=self.trace_id,
            producer=self.producer,
            headers=_object("headers", self.headers),
        )


def _object(name: str, raw: msgspec.Raw | None) -> dict[str, Any] | None:
    """Decodes an object; the engine would refuse a longer one."""
    if raw is None:
        return None
    if len(memoryview(raw)) > MAX_OBJECT:
        raise Refusal(
            400,
            "invalid_body",
            f"The field {name} of an event has more than {MAX_OBJECT:,} bytes: make it shorter.",
        )
    try:
        read: dict[str, Any] | None = msgspec.json.decode(raw, type=dict[str, Any] | None)
    except (msgspec.DecodeError, RecursionError) as error:
        said = f"The field {name} of an event is not valid: {error}."
        raise Refusal(400, "invalid_body", said) from None
    return read


class LogBody(msgspec.Struct, frozen=True):
    """An entry in the log of an event."""

    id: int
    worker_id: str | Absent
    action: str
    status_code: int | Absent
    error_message: str | Absent
    execution_time_ms: int | Absent
    created_at: str


class DeliveryBody(shape_of(Delivery)):  # type: ignore[misc]
    """The state of an event in one queue."""

    status: str


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """More about an event, on request."""

    type: str | Absent = UNSET
    attempts: int | Absent = UNSET
    crashes: int | Absent = UNSET
    """Leases that expired while a worker held it; always present if above zero."""
    reason: str | Absent | None = UNSET
    """Why it is a dead letter; always present if it is one."""
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


class ReasonBody(shape_of(Reason)):  # type: ignore[misc]
    """One reason why a delivery is not running, or what became of it."""

    about: Object
    """Its numbers and names, by code."""


class Why(msgspec.Struct, frozen=True):
    event_id: int
    reasons: list[ReasonBody]
    """By queue; of each delivery the one that counts first before the others."""


class AttemptBody(shape_of(Attempt)):  # type: ignore[misc]
    """One attempt at an event, from its claim to its end; times are to the millisecond."""


class RelativeBody(shape_of(Relative)):  # type: ignore[misc]
    """A related event."""


class StoryBody(msgspec.Struct, frozen=True, kw_only=True):
    """The history of an event, and its related events."""

    attempts: list[AttemptBody]
    """The last 100, in their order."""
    deliveries: list[DeliveryBody]
    caused_by: RelativeBody | None
    causes: list[RelativeBody]
    """Events that it caused, at most 50."""
    same_correlation: list[RelativeBody]
    """Other events with the same correlation id, at most 50."""


class EventBody(Details, frozen=True, kw_only=True):
    """An event and its state in the queue."""

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
    """A page of the events that match a filter."""

    events: list[ListedEvent]
    total: int
    limit: int
    offset: int
    total_is_exact: bool | Absent = UNSET
    """False: there may be more than `total`."""
    searched_to: int | Absent = UNSET
    """The search stopped at this id. To continue, ask for events `before` it, or `after` it with
    `oldest_first`."""


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
    """Proves the claim. Keep it secret; send it with heartbeats and when you finish the event."""


class ClaimedBody(Subscribed, frozen=True, kw_only=True):
    """An event that the worker now holds, with its origin."""

    type: str
    description: str | Absent
    version: str | Absent
    source: dict[str, str] | Absent
    correlation_id: str | Absent
    causation_id: str | Absent
    trace_id: str | Absent
    headers: dict[str, Any] | Absent


def event_body(event: Event, max_retries: int | None = None, *, details: bool = False) -> EventBody:
    """`max_retries`: that of the queue, for an event that has none itself."""
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
    """Always present where there are some, whatever the request: crashes, and why it is dead."""
    return {"crashes": event.crashes or UNSET, "reason": known(event.reason)}


def _details(event: Event) -> dict[str, Any]:
    return {name: plain(getattr(event, name)) for name in Details.__struct_fields__}


def delivery_body(delivery: Delivery) -> DeliveryBody:
    return told(DeliveryBody, delivery)


def log_body(entry: LogEntry) -> LogBody:
    missing = {name: UNSET for name in LogBody.__struct_fields__ if getattr(entry, name) is None}
    return told(LogBody, entry, **missing)


def subscribed(claimed: Claimed) -> Subscribed:
    return Subscribed(**_subscribed(claimed))


def claimed_body(claimed: Claimed) -> ClaimedBody:
    details = claimed.details
    return ClaimedBody(
        **_subscribed(claimed),
        type=claimed.type,
        **{name: details.get(name, UNSET) for name in _DESCRIBED},
    )


_DESCRIBED = tuple(
    name for name in ClaimedBody.__struct_fields__ if name in Described.__struct_fields__
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


def story_body(story: Story) -> StoryBody:
    def relatives(events: Iterable[Relative]) -> list[RelativeBody]:
        return [told(RelativeBody, event) for event in events]

    return StoryBody(
        attempts=[told(AttemptBody, one, precise_moment) for one in story.attempts],
        deliveries=[delivery_body(delivery) for delivery in story.deliveries],
        caused_by=told(RelativeBody, story.caused_by) if story.caused_by else None,
        causes=relatives(story.causes),
        same_correlation=relatives(story.same_correlation),
    )
