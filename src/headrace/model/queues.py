"""Namespaces, queues, their dead letters and statistics."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec

from headrace.model.events import Described
from headrace.model.limits import Limit

Order: TypeAlias = Literal["fair", "oldest"]
"""The order in which a queue hands out ready events. fair: the most urgent first, types and tags
take turns, the oldest of each; oldest: the lowest priority and id of all, one claim at a time."""


class Queue(msgspec.Struct, frozen=True):
    """A queue of a namespace: its filter, its state and its settings."""

    name: str
    state: Literal["active", "paused", "draining"]
    takes: bool
    """False: the queue is disabled and takes no new events."""
    types: tuple[str, ...] | None
    tags: tuple[str, ...] | None
    all_tags: bool
    depth: int
    """How many deliveries wait, counted up to 10,000 or, if that is more, `max_queue_depth`."""
    filling: Literal["waiting", "running"] | None
    """The queue also takes earlier events, and does not have all of them yet."""
    max_retries: int
    backoff: Mapping[str, Any]
    max_queue_depth: int | None
    high_watermark: int | None
    batch_size: int | None
    processing_interval: timedelta
    persistence_threshold: int | None
    """The state is saved as soon as this many deliveries wait."""
    require_lease_token: bool
    """A worker must send the lease token of a claim to finish or extend it or save progress."""
    order: Order
    """fair: types and tags take turns, the oldest of each; oldest: the lowest priority and id."""
    lease: timedelta | None
    """How long a claim without a lease of its own lasts; None: as the server has it, else 60
    seconds."""
    limits: tuple[Limit, ...] | None
    """Of groups of events: how many at once, how many in a time. None: no limits."""
    fair_by: Mapping[str, str] | None
    """{"tag": prefix}: tags that begin with it take turns; None: types and tags do."""
    aging: timedelta | None
    """A waiting event rises one priority each time it has waited for so long; None: never."""
    max_snoozes: int | None
    """A further snooze of a delivery that was snoozed so often is a failure; None: no limit."""
    metadata: Mapping[str, Any]
    created_at: datetime


class Namespace(msgspec.Struct, frozen=True):
    """A namespace and its settings."""

    name: str
    unhandled: Literal["keep", "dead_letter"]
    """Whether events that no node handles are kept or become dead letters."""
    metadata: Mapping[str, Any]
    queues: int
    """The number of its queues."""
    created_at: datetime
    unhandled_after: timedelta
    """How long events must be without a handler before they become dead letters."""


class DeadLetter(Described, frozen=True, kw_only=True):
    """A delivery that has no retries left, or was given up, and why."""

    id: int
    type: str
    tags: tuple[str, ...] = ()
    payload: Any
    """None in a list without payloads."""
    priority: int
    status: Literal["FAILED", "COMPLETED_WITH_ERRORS"]
    reason: str
    error: str | None
    fingerprint: str | None
    """Identifies the error group: see `dead_letter_groups`."""
    attempts: int
    retry_count: int
    crashes: int
    max_retries: int
    created_at: datetime
    died_at: datetime
    key: str | None = None
    title: str
    scheduled_task_id: str | None = None
    """The schedule that published it; `scheduled_for` is the time, None if it was run by hand."""
    scheduled_for: datetime | None = None
    backoff: Mapping[str, Any] | None = None


class DeadLetterGroup(msgspec.Struct, frozen=True):
    """Dead letters with the same kind of error."""

    fingerprint: str | None
    message: str
    """The message of the last one."""
    types: tuple[str, ...]
    letters: int
    first_died_at: datetime
    last_died_at: datetime
    sample_ids: tuple[int, ...]
    """The ids of the three most recent ones."""


class Stats(msgspec.Struct, frozen=True):
    """The deliveries of a queue by state, and what happened in a period."""

    ready: int
    delayed: int
    processing: int
    """Claimed, and perhaps begun."""
    claimed_ahead: int
    """Claimed by nodes beyond the handlers that they run at once: these wait for a handler."""
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
    """False: there are more than 100,000 in a state, and their number was estimated."""
    missing: tuple[str, ...] = ()
    """Of several shards, those that did not answer."""


class Point(msgspec.Struct, frozen=True):
    """One step in the history of a queue."""

    at: datetime
    """The start of the step."""
    seconds: float
    """How much of the step is over: the last step may still run."""
    depth: int | None
    """The highest queue depth that was sampled; None: no sample."""
    oldest_age: float | None
    """Age of the oldest waiting delivery, in seconds."""
    published: int
    completed: int
    failed: int
    """Attempts that failed or were abandoned."""
    retried: int
    dead: int
    wait_p50: float | None
    """Queue latency in seconds, from publishing to the first claim, of the attempts that ended in
    this step. None: no attempt ended."""
    wait_p95: float | None
    wait_p99: float | None
    run_p50: float | None
    """Run time in seconds, from a claim to its end."""
    run_p95: float | None
    run_p99: float | None


class History(msgspec.Struct, frozen=True):
    """The history of a queue, step by step."""

    step: int
    """Seconds."""
    points: list[Point]
    """The oldest first, without gaps."""
    missing: tuple[str, ...] = ()
    """Of several shards, those that did not answer."""
