"""Looking: at events, the log, dead letters, workers, statistics."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from headrace.arguments import interval
from headrace.model import (
    DeadLetter,
    DeadLetterGroup,
    Delivery,
    Duration,
    Event,
    LogEntry,
    LogPage,
    Stats,
    Worker,
    instant,
    said_time,
    scheduled_for,
    told,
    told_details,
)
from headrace.statements.base import (
    Row,
    Statement,
    instant_or_none,
    timed,
)

_EVENT_TIMES = (
    "next_retry_at",
    "processing_started_at",
    "lease_expires_at",
    "created_at",
    "updated_at",
)
_EVENT_COLUMNS = (
    *("id", "type", "status", "attempts", "retry_count", "crashes", "max_retries", "priority"),
    *("worker_id", "tags", "payload", "details", "key", "reason"),
    *_EVENT_TIMES,
)
SELECT_EVENTS = f"""\
select id, type, status, attempts, retry_count, crashes, max_retries, priority,
       worker_id, tags, payload::pg_catalog.text, details::pg_catalog.text, key, reason,
       {", ".join(f"pg_catalog.timestamptz_send({name})" for name in _EVENT_TIMES)}
from headrace."""


_DETAILS = {
    *("title", "description", "version", "source", "correlation_id", "causation_id", "trace_id"),
    *("producer", "scheduled_task_id", "scheduled_for", "headers", "backoff"),
}


def event(namespace: str, queue: str, event_id: int) -> Statement[Event]:
    return Statement(
        SELECT_EVENTS + "event(%s, %s::bigint, %s)",
        (namespace, event_id, queue),
        lambda rows: read_event(namespace, rows[0]),
    )


def read_event(namespace: str, row: Row) -> Event:
    values = dict(zip(_EVENT_COLUMNS, row, strict=True)) | {"namespace": namespace}
    details, payload = values.pop("details"), values["payload"]
    values |= {"tags": tuple(values["tags"] or ())}
    values |= {"payload": None if payload is None else told(payload)}
    values |= {name: instant_or_none(values[name]) for name in _EVENT_TIMES}
    return Event(**{"title": values["type"], **values, **described_event(details)})


def described_event(details: str | None) -> dict[str, Any]:
    said = told_details(details)
    return _described(said) | {"emitted_at": said_time(said, "emitted_at")}


def described(details: str | None) -> dict[str, Any]:
    return _described(told_details(details))


def _described(said: dict[str, Any]) -> dict[str, Any]:
    # What else was written into them past the functions is no field of an event.
    known = {name: value for name, value in said.items() if name in _DETAILS}
    return {**known, "scheduled_for": scheduled_for(known)} if "scheduled_for" in known else known


class Filter(NamedTuple):
    """Which events are looked for, in the engine's order."""

    statuses: list[str] | None
    types: list[str] | None
    tags: list[str] | None
    all_tags: bool
    since: str | None
    until: str | None
    key: str | None
    orphaned: bool
    orphan_after: timedelta


_FILTER = (
    "%s, %s, %s::pg_catalog.text[], %s::pg_catalog.text[], %s::pg_catalog.text[], %s::boolean, %s::pg_catalog.timestamptz, %s::pg_catalog.timestamptz, "
    "%s, %s::boolean, %s::interval"
)


class Page(NamedTuple):
    """Which of them, in the engine's order."""

    limit: int
    offset: int
    after: int | None
    before: int | None
    oldest_first: bool
    payload: bool


def events(namespace: str, queue: str, filter: Filter, page: Page) -> Statement[list[Event]]:
    return Statement(
        f"{SELECT_EVENTS}events({_FILTER}, %s::int, %s::int, %s::bigint, %s::bigint, "
        "%s::boolean, %s::boolean)",
        (namespace, queue, *filter, *page),
        lambda rows: [read_event(namespace, row) for row in rows],
    )


class Count(NamedTuple):
    total: int
    is_exact: bool


def count_events(namespace: str, queue: str, filter: Filter) -> Statement[Count]:
    return Statement(
        f"select total, is_exact from headrace.count_events({_FILTER})",
        (namespace, queue, *filter),
        lambda rows: Count(*rows[0]),
    )


def deliveries(namespace: str, event_id: int) -> Statement[tuple[Delivery, ...]]:
    return Statement(
        "select queue, status, attempts, retry_count, crashes, max_retries, "
        "pg_catalog.timestamptz_send(next_retry_at), worker_id, "
        "pg_catalog.timestamptz_send(processing_started_at), "
        "pg_catalog.timestamptz_send(lease_expires_at), "
        "pg_catalog.timestamptz_send(updated_at) from headrace.deliveries(%s, %s::bigint)",
        (namespace, event_id),
        lambda rows: tuple(Delivery(*timed(row, 6, 8, 9, 10)) for row in rows),
    )


def event_log(namespace: str, event_id: int) -> Statement[list[LogEntry]]:
    return Statement(
        "select id, queue, action, worker_id, attempt, status_code, error_message, "
        "execution_time_ms, pg_catalog.timestamptz_send(created_at), %s::bigint "
        "from headrace.event_log(%s, %s::bigint)",
        (event_id, namespace, event_id),
        lambda rows: [LogEntry(*timed(row, 8)) for row in rows],
    )


def log_since(
    namespace: str, after: int, limit: int, actions: list[str] | None, mark: str | None
) -> Statement[LogPage]:
    def read(rows: list[Row]) -> LogPage:
        *entries, (after, *_, mark, read_to, rewound_to) = rows
        told = [LogEntry(*timed(row[:-3], 8)) for row in entries]
        return LogPage(told, after, mark, read_to, rewound_to)

    return Statement(
        "select id, queue, action, worker_id, attempt, status_code, error_message, "
        "execution_time_ms, pg_catalog.timestamptz_send(created_at), event_id, type, next_mark, read_to, "
        "rewound_to from headrace.log_since(%s, %s::bigint, %s::int, %s::pg_catalog.text[], %s)",
        (namespace, after, limit, actions, mark),
        read,
    )


class LogWait(NamedTuple):
    """A transaction that a reader of the log waits for."""

    pid: int | None
    """None: it is prepared for a commit in two phases."""
    since: datetime | None


def log_waits(mark: str) -> Statement[LogWait | None]:
    """What the reader who has this mark waits for."""
    return Statement(
        "select pid, pg_catalog.timestamptz_send(since) from headrace.log_waits(%s)",
        (mark,),
        lambda rows: LogWait(rows[0][0], instant_or_none(rows[0][1])) if rows else None,
    )


def log_end() -> Statement[int]:
    """Where the log ends now."""
    return Statement("select headrace.log_end()", (), lambda rows: rows[0][0])


def log_now() -> Statement[tuple[str, int]]:
    """A mark for `log_since`, to be told what happens from now on, and where the log ends now."""
    return Statement("select * from headrace.log_now()", (), lambda rows: rows[0])


_LETTER_COLUMNS = (
    *("id", "type", "tags", "payload", "details", "priority", "status", "reason", "error"),
    *("fingerprint", "attempts", "retry_count", "crashes", "max_retries", "key"),
    *("created_at", "died_at"),
)
_SELECT_LETTERS = """\
select id, type, tags, payload::pg_catalog.text, details::pg_catalog.text, priority, status, reason, error,
       fingerprint, attempts, retry_count, crashes, max_retries, key,
       pg_catalog.timestamptz_send(created_at), pg_catalog.timestamptz_send(died_at)
from headrace."""


class Letters(NamedTuple):
    """Which dead letters, in the engine's order."""

    types: list[str] | None
    fingerprint: str | None
    since: str | None
    until: str | None
    limit: int
    before: int | None
    payload: bool


def dead_letters(namespace: str, queue: str, letters: Letters) -> Statement[list[DeadLetter]]:
    return Statement(
        _SELECT_LETTERS
        + "dead_letters(%s, %s, %s::pg_catalog.text[], %s, %s::pg_catalog.timestamptz, %s::pg_catalog.timestamptz, "
        "%s::int, %s::bigint, %s::boolean)",
        (namespace, queue, *letters),
        lambda rows: [_read_letter(row) for row in rows],
    )


def dead_letter(namespace: str, queue: str, event_id: int) -> Statement[DeadLetter]:
    return Statement(
        _SELECT_LETTERS + "dead_letter(%s, %s::bigint, %s)",
        (namespace, event_id, queue),
        lambda rows: _read_letter(rows[0]),
    )


def _read_letter(row: Row) -> DeadLetter:
    values = dict(zip(_LETTER_COLUMNS, row, strict=True))
    details, payload = values.pop("details"), values["payload"]
    values |= {"tags": tuple(values["tags"] or ())}
    values |= {"payload": None if payload is None else told(payload)}
    values |= {name: instant_or_none(values[name]) for name in ("created_at", "died_at")}
    return DeadLetter(**{"title": values["type"], **values, **described(details)})


def dead_letter_groups(namespace: str, queue: str, limit: int) -> Statement[list[DeadLetterGroup]]:
    return Statement(
        "select fingerprint, message, types, letters, pg_catalog.timestamptz_send(first_died_at), "
        "pg_catalog.timestamptz_send(last_died_at), sample_ids "
        "from headrace.dead_letter_groups(%s, %s, %s::int)",
        (namespace, queue, limit),
        lambda rows: [
            DeadLetterGroup(a, b, tuple(c), d, instant(e), instant(f), tuple(g))
            for a, b, c, d, e, f, g in rows
        ],
    )


def workers(namespace: str, queue: str, period: Duration) -> Statement[list[Worker]]:
    return Statement(
        "select worker_id, holds, pg_catalog.timestamptz_send(oldest_claim_at), "
        "pg_catalog.timestamptz_send(lease_expires_at), "
        "pg_catalog.timestamptz_send(last_seen_at), completed, failed, released, abandoned, "
        "pg_catalog.timestamptz_send(since) from headrace.workers(%s, %s, %s::interval)",
        (namespace, queue, interval(period, "period")),
        lambda rows: [Worker(*timed(row, 2, 3, 4, 9)) for row in rows],
    )


def stats(namespace: str, queue: str, period: Duration) -> Statement[Stats]:
    return Statement(
        "select ready, delayed, processing, dead_letters, "
        "pg_catalog.timestamptz_send(oldest_ready_at), published, completed, failed, abandoned, "
        "dead_lettered, attempts, average_ms, is_exact from headrace.stats(%s, %s, %s::interval)",
        (namespace, queue, interval(period, "period")),
        lambda rows: Stats(*timed(rows[0], 4)),
    )
