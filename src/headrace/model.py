"""The records a caller gives and gets: events, claims, results of work and verdicts on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

Duration: TypeAlias = float | timedelta
"""A number of seconds, or a timedelta."""

Status: TypeAlias = Literal[
    "PENDING", "PROCESSING", "COMPLETED", "COMPLETED_WITH_ERRORS", "FAILED", "CANCELLED"
]

Action: TypeAlias = Literal[
    "EMITTED",
    "PICKED",
    "STARTED",
    "COMPLETED",
    "COMPLETED_WITH_ERRORS",
    "FAILED",
    "RELEASED",
    "ABANDONED",
    "RESET",
    "CANCELLED",
    "DEAD_LETTERED",
    "REDRIVEN",
    "PURGED",
    "ERASED",
]
"""What the log tells of."""

Scope: TypeAlias = Literal["publish", "consume", "read", "admin"]
"""What a token may: publish events, claim and finish them, look, or everything."""

Missed: TypeAlias = Literal["coalesce", "catch_up", "skip"]
"""What becomes of the fires of a schedule that everybody was down for: one event for the last of them, one for
each (of the last 100), or none. What is less than a minute late is not missed."""


class Fixed(msgspec.Struct, frozen=True):
    """Try again after the same delay every time. `jitter` adds up to this part of it, at random; it never takes
    away, here and in the others."""

    delay: Duration = 300
    jitter: float = 0


class Linear(msgspec.Struct, frozen=True):
    """Try again after `first`, and `step` more each time (as much as `first`, unless it is given), up to `longest`."""

    first: Duration = 60
    step: Duration | None = None
    longest: Duration = 86_400
    jitter: float = 0


class Exponential(msgspec.Struct, frozen=True):
    """Try again after `first`, then `factor` times as long each time, up to `longest`; and up to a tenth more, so that what
    failed together is not tried again together."""

    first: Duration = 5
    factor: float = 2
    longest: Duration = 3_600
    jitter: float = 0.1


Backoff: TypeAlias = Fixed | Linear | Exponential | Duration | Mapping[str, Any]
"""When to try again what has failed. A number of seconds is a fixed delay; a mapping is what the engine knows a policy by
(docs/sql.md), and what is told of a policy."""

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_decode = msgspec.json.Decoder().decode


def told(stored: str | bytes) -> Any:
    """A stored JSON value. One that cannot be read says so, as the engine's `readable` does: it spoils no list."""
    try:
        return _decode(stored)
    except (msgspec.DecodeError, RecursionError) as error:
        return {"unreadable": str(error)}


def told_details(stored: str | bytes | None) -> dict[str, Any]:
    """What describes an event, by the names that it can have; what cannot be read is said among the headers."""
    details = told(stored) if stored else {}
    if not isinstance(details, dict):
        details = {"unreadable": "it is not an object"}
    if "unreadable" in details:
        return {"headers": {"unreadable": details["unreadable"]}}
    return details


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


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event, and where its delivery in a queue stood when it was looked at."""

    id: int
    type: str
    tags: tuple[str, ...] = ()
    payload: Any
    """None in a list that was not asked for payloads."""
    status: Status | None
    """None: it has no delivery in this queue, or it was published again under an idempotency key, see `repeated`."""
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
    description: str | None = None
    version: str | None = None
    source: Mapping[str, str] | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    producer: str | None = None
    scheduled_task_id: str | None = None
    """The schedule that fired it; `scheduled_for` is the instant, None for one that was run by hand."""
    scheduled_for: datetime | None = None
    headers: Mapping[str, Any] | None = None
    """What it was given besides the payload, for whoever handles it; Headrace makes nothing of it."""
    backoff: Mapping[str, Any] | None = None
    key: str | None = None
    repeated: bool = False
    """From `publish`: the idempotency key was used before, so this is that event; where it stands was not asked."""
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
    """Where an event stands in one of the queues it was delivered to."""

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


class EventPage(msgspec.Struct, frozen=True):
    """Some of the events that a filter selects, and how many it selects in all."""

    events: list[Event]
    total: int
    total_is_exact: bool = True
    """False: there are more than `total`, or may be."""
    searched_to: int | None = None
    """With `look_at`, where that was not all: more may be beyond this id. To go on, ask for what is `before` it, or, the oldest first, `after` it."""


class Claim(msgspec.Struct, frozen=True):
    """What proves a claim, for somebody who does not have the event: see `Claimed`."""

    id: int
    attempt: int
    lease: int | None = None
    held: bool = False
    lease_token: str | None = None


class Claimed(msgspec.Struct, frozen=True, gc=False, weakref=False):
    """An event this worker holds until its lease ends; (id, attempt) is the proof of it.

    A poll makes a thousand of them, most of which are asked for their payload and nothing else, so
    what is seldom asked for is kept as it came and decoded on demand.
    """

    id: int
    attempt: int
    lease: int
    held: bool
    """Claimed on its own (`each`, or a suspect), so its finish touches no other's."""
    type: str
    tags: tuple[str, ...]
    payload: Any
    priority: int
    retry_count: int
    crashes: int
    max_retries: int
    lease_expires_at: datetime
    raw_created_at: bytes
    raw_details: bytes | None
    lease_token: str | None = None
    """Proves the claim: nobody can guess it. All that was claimed together has the same."""

    def __repr__(self) -> str:
        return (
            f"Claimed(id={self.id}, attempt={self.attempt}, type={self.type!r}, "
            f"tags={self.tags}, payload={self.payload!r})"
        )

    @property
    def created_at(self) -> datetime:
        return instant(self.raw_created_at)

    @property
    def details(self) -> dict[str, Any]:
        return told_details(self.raw_details)

    @property
    def title(self) -> str:
        return self.details.get("title") or self.type

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
    def scheduled_task_id(self) -> str | None:
        return self.details.get("scheduled_task_id")

    @property
    def scheduled_for(self) -> datetime | None:
        """The instant for which its schedule fired it."""
        return scheduled_for(self.details)

    @property
    def headers(self) -> dict[str, Any] | None:
        return self.details.get("headers")


AnyClaim: TypeAlias = Claimed | Claim


class Completed(msgspec.Struct, frozen=True):
    """The attempt ended well."""

    claimed: AnyClaim
    execution_time_ms: int | None = None
    status_code: int | None = None


class Failed(msgspec.Struct, frozen=True):
    """The attempt failed: it is retried by the policy, and dead-lettered once that is used up."""

    claimed: AnyClaim
    error: str | BaseException = ""
    execution_time_ms: int | None = None
    status_code: int | None = None
    retry_in: Duration | None = None
    """Instead of the policy's delay."""
    max_retries: int | None = None
    """The handler's policy, where the event has none; so is `backoff`."""
    backoff: Backoff | None = None
    reason: str | None = None
    """Dead-letter it now, and why."""
    status: Literal["FAILED", "COMPLETED_WITH_ERRORS"] = "FAILED"
    """What it is called once it is dead."""
    last_reason: str | None = None
    """Why it is dead, if this failure was the last that its policy allows; else that says so itself."""
    progress: Any = None
    """What is kept for its next attempt, as by `save_progress`; None leaves what was saved as it is."""


class Released(msgspec.Struct, frozen=True):
    """The event is handed back unfinished: ready again, nothing charged. At once the first time, then later with each release in a row."""

    claimed: AnyClaim
    execution_time_ms: int | None = None
    status_code: int | None = None
    progress: Any = None
    """As in Failed."""


class CutOff(msgspec.Struct, frozen=True):
    """The connection to PostgreSQL was lost under the handler: as if the lease had run out. The first time makes the event a suspect, which is
    claimed alone from then on; a suspect is charged."""

    claimed: AnyClaim
    error: str = ""
    execution_time_ms: int | None = None
    status_code: int | None = None
    max_retries: int | None = None
    """As in Failed; so are the others."""
    last_reason: str | None = None
    progress: Any = None


Result: TypeAlias = Completed | Failed | Released | CutOff


class Verdict(msgspec.Struct, frozen=True):
    """What became of a result."""

    verdict: Literal["counted", "repeated", "conflict", "lost"]
    """counted: this call ended the attempt. repeated: it had ended in this way before, this is the
    first answer. conflict: it had ended in another way. lost: it is not the current claim."""
    action: str | None = None
    """How the attempt has ended, in the log's words; None when it was lost without a trace."""
    at: datetime | None = None
    """When; None for what this call has completed."""
    retry_at: datetime | None = None
    """When it will be tried again; None: never."""
    retry_count: int | None = None
    max_retries: int | None = None


class Extended(msgspec.Struct, frozen=True):
    """What became of a heartbeat."""

    state: Literal["held", "busy", "lost"]
    """busy: somebody has it locked for a moment. It is not lost, ask again."""
    lease_expires_at: datetime | None = None


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
    """The number in `cursor`: that of the last entry told, or one beyond it that is never given to another entry."""
    mark: str
    """`cursor`, and what is known about who is still writing: for the next call; it may be lost."""
    read_to: int
    """How far the log was read."""
    rewound_to: int | None = None
    """A standby was promoted, or a backup restored: the entries after this number may have been told before."""

    @property
    def cursor(self) -> str:
        """Where to go on, to be kept: also after a promotion and a restore nothing is skipped."""
        return self.mark.partition(" ")[0]

    @property
    def awaits_others(self) -> bool:
        """Whether transactions that are open may still write what comes next."""
        return len(self.mark.split(" ", 5)) > 5 and not self.mark.endswith(" ")

    @property
    def server(self) -> str:
        """Which start of which server, in which life of its database, told it: what is known of one is void in another."""
        return read_server(self.mark)


class Queue(msgspec.Struct, frozen=True):
    """A queue of a namespace: what it takes, how it does, its settings."""

    name: str
    state: Literal["active", "paused", "draining"]
    takes: bool
    """False: it is switched off and gets nothing new."""
    types: tuple[str, ...] | None
    tags: tuple[str, ...] | None
    all_tags: bool
    depth: int
    """How many deliveries wait, counted to 10,000, or to the queue's limit if that is more."""
    filling: Literal["waiting", "running"] | None
    """It began in the past and has not got all of that yet."""
    max_retries: int
    backoff: Mapping[str, Any]
    max_queue_depth: int | None
    high_watermark: int | None
    batch_size: int | None
    processing_interval: timedelta
    persistence_threshold: int | None
    """Its state is saved as soon as as many wait."""
    require_lease_token: bool
    """A claim is ended, extended and given progress only with its lease token."""
    metadata: Mapping[str, Any]
    created_at: datetime


class Namespace(msgspec.Struct, frozen=True):
    """A namespace and its settings."""

    name: str
    unhandled: Literal["keep", "dead_letter"]
    """What becomes of events that no node handles."""
    metadata: Mapping[str, Any]
    queues: int
    """How many it has."""
    created_at: datetime
    unhandled_after: timedelta
    """For how long nobody must have handled events, before they are dead-lettered."""


class AdminAction(msgspec.Struct, frozen=True):
    """Something that was done on purpose, and by whom."""

    id: int
    created_at: datetime
    namespace: str | None
    """None: it concerned the whole installation, or the namespace has been deleted."""
    actor: str
    action: str
    """The name of the call that did it."""
    target: str | None
    """What it was done to: a queue, a schedule, an event …"""
    details: Mapping[str, Any]


class Token(msgspec.Struct, frozen=True):
    """A token of the HTTP API, without its secret, which is kept nowhere."""

    id: int
    name: str
    scopes: tuple[Scope, ...]
    namespaces: tuple[str, ...] | None
    """The ones it is good for; None: all of them."""
    live: bool
    """It was not revoked and has not expired."""
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


class BoundRole(msgspec.Struct, frozen=True):
    """A role of the database that works in some namespaces only."""

    role: str
    namespaces: tuple[str, ...]
    bound_at: datetime
    bound_by: str


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that used up its attempts, or was given up, and why."""

    id: int
    type: str
    tags: tuple[str, ...] = ()
    payload: Any
    """None in a list that was not asked for payloads."""
    priority: int
    status: Literal["FAILED", "COMPLETED_WITH_ERRORS"]
    reason: str
    error: str | None
    fingerprint: str | None
    """The same for errors of one kind: see `dead_letter_groups`."""
    attempts: int
    retry_count: int
    crashes: int
    max_retries: int
    created_at: datetime
    died_at: datetime
    key: str | None = None
    title: str
    description: str | None = None
    version: str | None = None
    source: Mapping[str, str] | None = None
    correlation_id: str | None = None
    causation_id: str | None = None
    trace_id: str | None = None
    producer: str | None = None
    scheduled_task_id: str | None = None
    """The schedule that fired it; `scheduled_for` is the instant, None for one that was run by hand."""
    scheduled_for: datetime | None = None
    headers: Mapping[str, Any] | None = None
    backoff: Mapping[str, Any] | None = None


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """Dead letters whose errors are of one kind."""

    fingerprint: str | None
    message: str
    """What the last one said."""
    types: tuple[str, ...]
    letters: int
    first_died_at: datetime
    last_died_at: datetime
    sample_ids: tuple[int, ...]
    """The three that died last."""


class Worker(msgspec.Struct, frozen=True):
    """Somebody who has claims, or has ended an attempt lately."""

    worker_id: str
    holds: int
    oldest_claim_at: datetime | None
    lease_expires_at: datetime | None
    """The first of its leases to end."""
    last_seen_at: datetime | None
    """Its last claim or end; a heartbeat leaves no trace."""
    completed: int
    failed: int
    released: int
    abandoned: int
    since: datetime
    """What was counted happened since then."""


class NodeInfo(msgspec.Struct, frozen=True):
    """A node that has registered."""

    node_id: str
    alive: bool
    """It has not stopped, its last heartbeat is younger than 90 seconds, and its connection is not seen to be gone."""
    display_name: str | None
    description: str | None
    metadata: Mapping[str, Any]
    handles: tuple[str, ...]
    worker_id: str
    """The name its claims have."""
    instance: str
    """Of this start of its process."""
    registered_at: datetime
    last_heartbeat: datetime
    stopped_at: datetime | None


class UnhandledType(msgspec.Struct, frozen=True):
    """A type of which deliveries wait in a queue while no live node handles it."""

    queue: str
    type: str
    deliveries: int
    """That could be claimed, counted to about 10,000; of an ordering key one at a time."""
    oldest_at: datetime
    since: datetime | None
    """When it was first seen to be so; None: nobody looks, because such events are kept."""


class ScheduledTask(msgspec.Struct, frozen=True):
    """An event that is published by the clock."""

    task_id: str
    name: str
    cron_expression: str
    timezone: str
    event_type: str
    payload: Any
    event: Mapping[str, Any]
    """What else it is published with: tags, priority, …"""
    missed: Missed
    active: bool
    """False: it is paused."""
    next_fires: tuple[datetime, ...]
    """As far as they are worked out."""
    last_fire_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Stats(msgspec.Struct, frozen=True):
    """How a queue is doing: what stands where, and what happened in the period asked for."""

    ready: int
    delayed: int
    processing: int
    dead_letters: int
    oldest_ready_at: datetime | None
    published: int
    completed: int
    failed: int
    abandoned: int
    dead_lettered: int
    attempts: int
    average_ms: float | None
    is_exact: bool = True
    """False: more than 100,000 stand somewhere, and how many was estimated."""


class QueueState(dict[str, Any]):
    """The state of a queue: the document, and how many events are unfinished in all."""

    def __init__(
        self, document: Mapping[str, Any], total: int, total_is_exact: bool = True
    ) -> None:
        super().__init__(document)
        self.total = total
        self.total_is_exact = total_is_exact
        """False: there are more than `total`."""


class LowWater(msgspec.Struct, frozen=True):
    """How far a queue has come, and why no further: everything at or below `checkpoint_id` is finished, and nothing
    can be committed below it any more."""

    checkpoint_id: str | None
    """The last event up to there that the queue had; None: none yet."""
    event_count: int
    """How many it has processed in all."""
    lag: int
    """How many are unfinished."""
    lag_is_exact: bool
    """False: there are more than `lag`."""
    oldest_at: datetime | None
    """When the oldest of them was published."""
    reason: str | None
    """What it waits for; None: it is at the end."""


class Checkpoint(msgspec.Struct, frozen=True):
    """How far a queue had come at some time: see LowWater. What comes after `created_at` is told by `checkpoint`, and
    not kept."""

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
    """What a node took over from an earlier start of itself that had died."""

    node_id: str
    checkpoint_id: str | None
    """How far the queue had come."""
    events_recovered: int
    recovery_start_time: datetime
    recovery_complete_time: datetime | None
    status: Literal["running", "completed"]


class Recovered(msgspec.Struct, frozen=True):
    """What a call of `recover` has done."""

    deliveries: int
    state: Literal["done", "more", "busy", "alive"]


class ReplayPage(msgspec.Struct, frozen=True):
    """A stretch of the events that are read again."""

    events: list[Event]
    after: int
    """How far was read."""
    mark: str
    """For the next call."""
    done: bool
    """The end is reached, as it was at the first call."""
    held_by: str | None
    """Who has a transaction open that may still publish before the end."""
    rewound_to: int | None = None
    """A standby was promoted, or a backup restored: the events after this id may have been told before."""


class Tick(msgspec.Struct, frozen=True):
    """What a tick has done."""

    due: int
    expired: int
    fired: int
    """Events of schedules."""
    kept_up: bool
    more: bool
    """A bound was reached: there is more to do at once."""
    at: datetime


Publishable: TypeAlias = NewEvent | Mapping[str, Any] | tuple[str, Any]
Publishables: TypeAlias = Iterable[Publishable]


def scheduled_for(details: Mapping[str, Any]) -> datetime | None:
    """The time that an event's details have as text; None where it is none, which anybody may have published."""
    try:
        return datetime.fromisoformat(details["scheduled_for"]).astimezone(UTC)
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def instant(raw: bytes) -> datetime:
    """A time as PostgreSQL sends it: microseconds since 2000, in UTC whatever the session's zone.

    What is beyond Python's years (infinity too) becomes the nearest it can say.
    """
    microseconds = int.from_bytes(raw, "big", signed=True)
    try:
        return _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return _LAST if microseconds > 0 else _FIRST


class Point(msgspec.Struct, frozen=True):
    """How a queue fared in one step of its history."""

    at: datetime
    """Where the step begins."""
    seconds: float
    """How much of it is over; less than all of it in the last."""
    depth: int | None
    """The most that was seen to wait; None: nobody looked."""
    oldest_age: float | None
    """Seconds since what waits was published, at most."""
    published: int
    completed: int
    failed: int
    """Attempts that failed or were abandoned."""
    retried: int
    dead: int
    wait_p50: float | None
    """Seconds from publishing to the first claim; half of those that ended in this step took less. None: none did."""
    wait_p95: float | None
    wait_p99: float | None
    run_p50: float | None
    """Seconds from a claim to its end."""
    run_p95: float | None
    run_p99: float | None


class History(msgspec.Struct, frozen=True):
    """How a queue fared, step by step."""

    step: int
    """Seconds."""
    points: list[Point]
    """The oldest first, without gaps."""
