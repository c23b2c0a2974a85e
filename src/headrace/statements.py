"""Each call of the engine as a value: its SQL, its parameters, how to read the reply.

Nothing here does any I/O. A runner executes `sql` with `params` and gives the rows to `read`, or an
error's SQLSTATE, message and detail to `explain`; so any driver can run a Statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import repeat
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from headrace.arguments import MAX_ID, MAX_INT, array, error_text, interval, seconds
from headrace.encoding import Batch, encode
from headrace.errors import (
    BY_SQLSTATE,
    HeadraceError,
    IdempotencyConflict,
    InvalidInput,
    InvalidPayload,
)
from headrace.model import (
    AnyClaim,
    Claimed,
    Completed,
    DeadLetter,
    DeadLetterGroup,
    Delivery,
    Duration,
    Event,
    Extended,
    Failed,
    LogEntry,
    LogPage,
    Namespace,
    NodeInfo,
    Queue,
    Released,
    Result,
    ScheduledTask,
    Stats,
    Tick,
    Verdict,
    Worker,
    instant,
    scheduled_for,
)

T = TypeVar("T")
Row = tuple[Any, ...]

# What PostgreSQL itself says to input that it cannot read, before the engine sees it.
_UNREADABLE = {"22003", "22007", "22008", "22015", "22021", "22P02", "22P05", "54000", "54001"}
_TIMES = {"22007", "22008"}
_PLACE = re.compile(r"event (\d+) of the batch")
_OWNER = re.compile(r"the key is that of event (\d+)")

_decode = msgspec.json.Decoder().decode
_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode


def explain(sqlstate: str | None, message: str, detail: str | None) -> HeadraceError | None:
    """Our exception for an error of the server's; None: it is not ours, and passes through."""
    if sqlstate in _UNREADABLE:
        return InvalidInput(message)
    ours = BY_SQLSTATE.get(sqlstate or "")
    return ours(message) if ours else None


class Statement(msgspec.Struct, Generic[T], frozen=True):
    sql: str
    params: Sequence[Any]
    read: Callable[[list[Row]], T]
    explain: Callable[[str | None, str, str | None], HeadraceError | None] = explain


class Together(NamedTuple):
    """Statements for one transaction, made while the ones before are being executed."""

    statements: Iterable[Statement[Any]]


def version() -> Statement[tuple[int, int]]:
    return Statement(
        "select major, minor from headrace.version()", (), lambda rows: (rows[0][0], rows[0][1])
    )


def create_namespace(namespace: str) -> Statement[bool]:
    return Statement("select headrace.create_namespace(%s)", (namespace,), lambda rows: rows[0][0])


def namespaces() -> Statement[list[Namespace]]:
    return Statement(
        "select name, unhandled, metadata::text, queues, pg_catalog.timestamptz_send(created_at) "
        "from headrace.namespaces()",
        (),
        lambda rows: [
            Namespace(name, unhandled, _decode(metadata), queues, instant(created_at))
            for name, unhandled, metadata, queues, created_at in rows
        ],
    )


def change_namespace(namespace: str, settings: dict[str, Any]) -> Statement[None]:
    return Statement(
        "select headrace.change_namespace(%s, %s::jsonb)",
        (namespace, encode(settings, "the settings").decode()),
        lambda rows: None,
    )


def delete_namespace(namespace: str, with_deliveries: bool, actor: str) -> Statement[None]:
    return Statement(
        "select headrace.delete_namespace(%s, %s::boolean, %s)",
        (namespace, with_deliveries, actor),
        lambda rows: None,
    )


class Published(NamedTuple):
    ids: list[int]
    created_at: datetime
    repeated: bool
    pressure: bool


_PUBLISH = """\
select ids, pg_catalog.timestamptz_send(created_at), repeated, pressure
from headrace.publish(%s, %s::jsonb)"""
_PUBLISH_ANYWAY = _PUBLISH[:-1] + ", enforce => false)"


def publish(namespace: str, batch: Batch, enforce: bool = True) -> Statement[Published]:
    """enforce: a queue that is full refuses the events; else it only tells of pressure."""
    return Statement(
        _PUBLISH if enforce else _PUBLISH_ANYWAY,
        (namespace, batch.document),
        partial(_read_published, batch.order),
        partial(_explain_publish, batch),
    )


def _read_published(order: Sequence[int] | None, rows: list[Row]) -> Published:
    ((ids, created_at, repeated, pressure),) = rows
    if order is not None:
        ids = [id for _, id in sorted(zip(order, ids, strict=True))]
    return Published(ids, instant(created_at), bool(repeated), pressure)


def _explain_publish(
    batch: Batch, sqlstate: str | None, message: str, detail: str | None
) -> HeadraceError | None:
    if sqlstate in _UNREADABLE - _TIMES:
        return InvalidPayload(message)
    error = explain(sqlstate, message, detail)
    place = _PLACE.search(detail or "")
    if isinstance(error, InvalidInput | IdempotencyConflict) and place:
        error.position = batch.position(int(place[1]) - 1)
    if isinstance(error, IdempotencyConflict) and (owner := _OWNER.search(detail or "")):
        error.event_id = int(owner[1])
    return error


# Times are fetched as the 8 bytes they are: Python makes a datetime only of those that are looked at.
_POLL = """\
select ids, payloads, details, type, tags, attempt, priority, retry_count, crashes, max_retries, created,
       lease, held, pg_catalog.timestamptz_send(lease_expires_at), hints
from headrace.poll_batch(%s, %s, %s::text[], %s::text[], %s::boolean, %s, %s::int, %s::interval,
                         %s::boolean, %s::boolean, %s, %s::boolean)"""


class Poll(NamedTuple):
    """The arguments of poll that its caller gives, in the engine's order."""

    types: list[str] | None
    tags: list[str] | None
    all_tags: bool
    worker: str
    max_events: int
    lease: timedelta
    each: bool
    suspects: bool


class Polled(NamedTuple):
    claimed: list[Claimed]
    unreadable: list[Failed]
    hints: str | None

    @property
    def found(self) -> bool:
        return bool(self.claimed or self.unreadable)


def poll(
    namespace: str, queue: str, poll: Poll, hints: str | None = None, sweep: bool = False
) -> Statement[Polled]:
    return Statement(_POLL, (namespace, queue, *poll, hints, sweep), _read_polled)


def _read_polled(rows: list[Row]) -> Polled:
    polled = Polled([], [], next((hints for *_, hints in rows if hints), None))
    for row in rows:
        try:
            polled.claimed.extend(_claimed(row))
        except Exception:
            _read_one_by_one(row, polled)
    return polled


# fmt: off
def _claimed(row: Row) -> list[Claimed]:
    (ids, payloads, details, type, tags, attempt, priority, retry_count, crashes, max_retries, created,
     lease, held, expires, _) = row
    tags = tuple(tags) if tags else ()
    expires_at = instant(expires)
    moments = repeat(created) if len(created) == 8 else _in_eights(created)
    return [
        Claimed(id, attempt, lease, held, type, tags, payload, priority, retry_count, crashes,
                max_retries, expires_at, created_at, detail)
        for id, payload, created_at, detail in zip(
            ids, _decode(payloads), moments, _parts(details) if details else repeat(None), strict=False
        )
    ]
# fmt: on


def _read_one_by_one(row: Row, polled: Polled) -> None:
    ids, payloads, details, *alike, created, lease, held, expires, hints = row
    for place, (id, payload) in enumerate(zip(ids, _parts(payloads), strict=True)):
        moment = created if len(created) == 8 else _in_eights(created)[place]
        rest = (*alike, moment, lease, held, expires, hints)
        try:
            detail = b"[%s]" % _parts(details)[place] if details else None
            polled.claimed.extend(_claimed(([id], b"[%s]" % payload, detail, *rest)))
        except Exception as error:
            (blank,) = _claimed(([id], b"[null]", None, *rest))
            reason = "Its payload cannot be read"
            polled.unreadable.append(Failed(blank, f"{reason}: {error}", reason=reason))


def _parts(array: str | bytes) -> list[bytes]:
    """The elements of a JSON array, undecoded."""
    return [bytes(part) for part in _decode_parts(array)]


def _in_eights(times: bytes) -> list[bytes]:
    return [times[at : at + 8] for at in range(0, len(times), 8)]


_FINISH = """\
select item, verdict, action, pg_catalog.timestamptz_send(at), pg_catalog.timestamptz_send(retry_at),
       retry_count, max_retries
from headrace.finish(%s, %s, %s::bigint[], %s::int[], %s::bigint[], %s::int[], %s::int[], %s::jsonb)"""

COMPLETED = Verdict("counted", "COMPLETED")
_LOST = Verdict("lost")


def finish(namespace: str, queue: str, results: Sequence[Result]) -> Statement[list[Verdict]]:
    """Verdicts come in the order of the results. A claim that cannot exist is lost, unsent."""
    proofs = _proofs([result.claimed for result in results])
    if proofs is None:
        return _finish_possible(namespace, queue, results)
    others = {
        str(item): _other(result)
        for item, result in enumerate(results, 1)
        if type(result) is not Completed
    }
    ended = Ended(
        [_milliseconds(result.execution_time_ms) for result in results],
        [result.status_code for result in results],
        encode(others, "a result").decode() if others else None,
    )
    return _end(namespace, queue, proofs, ended)


def complete(
    namespace: str, queue: str, claims: Sequence[AnyClaim], ms: int | None, code: int | None
) -> Statement[list[Verdict]]:
    """A finish in which all are completed alike, in half the time."""
    proofs = _proofs(claims)
    if proofs is None:
        return finish(namespace, queue, [Completed(claim, ms, code) for claim in claims])
    ended = Ended([_milliseconds(ms)] * len(claims), [code] * len(claims))
    return _end(namespace, queue, proofs, ended)


def complete_lease(
    namespace: str, queue: str, lease: int, size: int, ms: int | None, code: int | None
) -> Statement[bool]:
    """A complete of all that a lease covers; False: some of it has ended, and nothing was done."""
    return Statement(
        "select headrace.complete_lease(%s, %s, %s::bigint, %s::int, %s::int, %s::int)",
        (namespace, queue, lease, size, _milliseconds(ms), code),
        lambda rows: rows[0][0],
    )


class Proofs(NamedTuple):
    """Claims, column by column."""

    ids: list[int]
    attempts: list[int]
    leases: list[int | None]
    """None for one that is held on its own."""


class Ended(NamedTuple):
    """How each of the attempts ended, column by column."""

    ms: list[int | None]
    codes: list[int | None]
    others: str | None = None
    """Of those that are not completed."""


def _end(namespace: str, queue: str, proofs: Proofs, ended: Ended) -> Statement[list[Verdict]]:
    def read(rows: list[Row]) -> list[Verdict]:
        verdicts = [COMPLETED] * len(proofs.ids)
        for item, verdict, action, at, retry_at, retry_count, max_retries in rows:
            verdicts[item - 1] = Verdict(
                verdict, action, _instant(at), _instant(retry_at), retry_count, max_retries
            )
        return verdicts

    return Statement(
        _FINISH,
        (
            namespace,
            queue,
            array(proofs.ids),
            array(proofs.attempts),
            _unless_all_none(proofs.leases),
            _unless_all_none(ended.ms),
            _unless_all_none(ended.codes),
            ended.others,
        ),
        read,
    )


def _finish_possible(
    namespace: str, queue: str, results: Sequence[Result]
) -> Statement[list[Verdict]]:
    places = [place for place, result in enumerate(results) if _proofs([result.claimed])]
    statement = finish(namespace, queue, [results[place] for place in places])

    def read(rows: list[Row]) -> list[Verdict]:
        verdicts = [_LOST] * len(results)
        for place, verdict in zip(places, statement.read(rows), strict=True):
            verdicts[place] = verdict
        return verdicts

    return Statement(statement.sql, statement.params, read)


def _proofs(claims: Sequence[AnyClaim]) -> Proofs | None:
    """None if there is one among them that PostgreSQL's types cannot hold."""
    proofs = Proofs(
        [claim.id for claim in claims],
        [claim.attempt for claim in claims],
        [None if claim.held else claim.lease for claim in claims],
    )
    try:
        possible = (
            _within(MAX_ID, proofs.ids)
            and _within(MAX_INT, proofs.attempts)
            and _within(MAX_ID, {lease for lease in set(proofs.leases) if lease is not None})
        )
    except TypeError as error:
        raise InvalidInput(f"id, attempt and lease of a claim are numbers: {error}") from error
    return proofs if possible else None


def _within(most: int, numbers: Collection[int]) -> bool:
    return not numbers or (min(numbers) > 0 and max(numbers) <= most)


def _other(result: Failed | Released | Completed) -> dict[str, Any]:
    if isinstance(result, Released):
        return {"action": "release"}
    if isinstance(result, Completed):
        return {"action": "complete"}
    other = {
        "action": "fail",
        "error": error_text(result.error),
        "retry_in": None if result.retry_in is None else seconds(result.retry_in, "retry_in"),
        "max_retries": result.max_retries,
        "backoff": result.backoff,
        "reason": None if result.reason is None else error_text(result.reason),
        "status": result.status,
    }
    return {name: value for name, value in other.items() if value is not None}


def _milliseconds(given: float | None) -> int | None:
    return None if given is None else min(max(int(given), 0), MAX_INT)


def _unless_all_none(numbers: list[int | None]) -> str | None:
    return None if numbers.count(None) == len(numbers) else array(numbers)


def extend(
    namespace: str, queue: str, leases: Sequence[int], lease: Duration
) -> Statement[dict[int, Extended]]:
    """What became of each lease."""
    return Statement(
        "select lease, state, pg_catalog.timestamptz_send(lease_expires_at) "
        "from headrace.extend(%s, %s, %s::bigint[], %s::interval)",
        (namespace, queue, array(leases), interval(lease, "lease")),
        lambda rows: {row[0]: Extended(row[1], _instant(row[2])) for row in rows},
    )


def resolve(namespace: str, queue: str, event: int, attempt: int) -> Statement[str | None]:
    return Statement(
        "select headrace.resolve(%s, %s, %s::bigint, %s::int)",
        (namespace, queue, event, attempt),
        lambda rows: rows[0][0],
    )


def cancel(namespace: str, queue: str, event_id: int, reason: str, actor: str) -> Statement[bool]:
    return Statement(
        "select headrace.cancel(%s, %s::bigint, %s, %s, %s)",
        (namespace, event_id, queue, reason, actor),
        lambda rows: rows[0][0],
    )


def reset(namespace: str, queue: str, event_id: int, reason: str, actor: str) -> Statement[bool]:
    return Statement(
        "select headrace.reset(%s, %s::bigint, %s, %s, %s)",
        (namespace, event_id, queue, reason, actor),
        lambda rows: rows[0][0],
    )


class Step(NamedTuple):
    """What a step of redrive or purge has answered: the next one goes on from there."""

    started_at: datetime
    done: int
    more: bool


def redrive(
    namespace: str,
    queue: str,
    ids: Sequence[int] | None,
    types: list[str] | None,
    fingerprint: str | None,
    rate: float | None,
    reason: str,
    actor: str,
    last: Step | None = None,
) -> Statement[Step]:
    return Statement(
        "select pg_catalog.timestamptz_send(started_at), done, more "
        "from headrace.redrive(%s, %s, %s::bigint[], %s::text[], %s, %s::float8, %s, %s, "
        "started_at => %s::timestamptz, done => %s::bigint)",
        (
            *(namespace, queue, None if ids is None else array(ids), types, fingerprint),
            *(rate, reason, actor),
            *((last.started_at, last.done) if last else (None, 0)),
        ),
        _read_step,
    )


def purge(
    namespace: str,
    queue: str,
    what: str,
    ids: Sequence[int] | None,
    types: list[str] | None,
    fingerprint: str | None,
    reason: str,
    actor: str,
    last: Step | None = None,
) -> Statement[Step]:
    return Statement(
        "select pg_catalog.timestamptz_send(started_at), done, more "
        "from headrace.purge(%s, %s, %s, %s::bigint[], %s::text[], %s, %s, %s, "
        "started_at => %s::timestamptz, done => %s::bigint)",
        (
            *(namespace, queue, what, None if ids is None else array(ids), types, fingerprint),
            *(reason, actor),
            *((last.started_at, last.done) if last else (None, 0)),
        ),
        _read_step,
    )


def erase(namespace: str, event_id: int, reason: str, actor: str) -> Statement[bool]:
    return Statement(
        "select headrace.erase(%s, %s::bigint, %s, %s)",
        (namespace, event_id, reason, actor),
        lambda rows: rows[0][0],
    )


def _read_step(rows: list[Row]) -> Step:
    started_at, done, more = rows[0]
    return Step(instant(started_at), done, more)


_EVENT_TIMES = (
    "next_retry_at",
    "processing_started_at",
    "lease_expires_at",
    "created_at",
    "updated_at",
)
_EVENT_COLUMNS = (
    *("id", "type", "status", "attempts", "retry_count", "crashes", "max_retries", "priority"),
    *("worker_id", "tags", "payload", "details", "key"),
    *_EVENT_TIMES,
)
_SELECT_EVENTS = f"""\
select id, type, status, attempts, retry_count, crashes, max_retries, priority,
       worker_id, tags, payload::text, details::text, key,
       {", ".join(f"pg_catalog.timestamptz_send({name})" for name in _EVENT_TIMES)}
from headrace."""


def event(namespace: str, queue: str, event_id: int) -> Statement[Event]:
    return Statement(
        _SELECT_EVENTS + "event(%s, %s::bigint, %s)",
        (namespace, event_id, queue),
        lambda rows: _read_event(rows[0]),
    )


def _read_event(row: Row) -> Event:
    values = dict(zip(_EVENT_COLUMNS, row, strict=True))
    details, payload = values.pop("details"), values["payload"]
    values |= {"tags": tuple(values["tags"] or ())}
    values |= {"payload": None if payload is None else _decode(payload)}
    values |= {name: _instant(values[name]) for name in _EVENT_TIMES}
    return Event(**{"title": values["type"], **values, **_described(details)})


def _described(details: str | None) -> dict[str, Any]:
    known: dict[str, Any] = _decode(details) if details else {}
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
    "%s, %s, %s::text[], %s::text[], %s::text[], %s::boolean, %s::timestamptz, %s::timestamptz, "
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
        f"{_SELECT_EVENTS}events({_FILTER}, %s::int, %s::int, %s::bigint, %s::bigint, "
        "%s::boolean, %s::boolean)",
        (namespace, queue, *filter, *page),
        lambda rows: [_read_event(row) for row in rows],
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
        lambda rows: tuple(Delivery(*_timed(row, 6, 8, 9, 10)) for row in rows),
    )


def event_log(namespace: str, event_id: int) -> Statement[list[LogEntry]]:
    return Statement(
        "select id, queue, action, worker_id, attempt, status_code, error_message, "
        "execution_time_ms, pg_catalog.timestamptz_send(created_at), %s::bigint "
        "from headrace.event_log(%s, %s::bigint)",
        (event_id, namespace, event_id),
        lambda rows: [LogEntry(*_timed(row, 8)) for row in rows],
    )


def log_since(
    namespace: str, after: int, limit: int, actions: list[str] | None, mark: str | None
) -> Statement[LogPage]:
    def read(rows: list[Row]) -> LogPage:
        *entries, (reached, *_, mark) = rows
        return LogPage([LogEntry(*_timed(row[:-1], 8)) for row in entries], reached, mark)

    return Statement(
        "select id, queue, action, worker_id, attempt, status_code, error_message, "
        "execution_time_ms, pg_catalog.timestamptz_send(created_at), event_id, type, next_mark "
        "from headrace.log_since(%s, %s::bigint, %s::int, %s::text[], %s)",
        (namespace, after, limit, actions, mark),
        read,
    )


_LETTER_COLUMNS = (
    *("id", "type", "tags", "payload", "details", "priority", "status", "reason", "error"),
    *("fingerprint", "attempts", "retry_count", "crashes", "max_retries", "key"),
    *("created_at", "died_at"),
)
_SELECT_LETTERS = """\
select id, type, tags, payload::text, details::text, priority, status, reason, error,
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
        _SELECT_LETTERS + "dead_letters(%s, %s, %s::text[], %s, %s::timestamptz, %s::timestamptz, "
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
    values |= {"payload": None if payload is None else _decode(payload)}
    values |= {name: _instant(values[name]) for name in ("created_at", "died_at")}
    return DeadLetter(**{"title": values["type"], **values, **_described(details)})


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
        lambda rows: [Worker(*_timed(row, 2, 3, 4, 9)) for row in rows],
    )


def stats(namespace: str, queue: str, period: Duration) -> Statement[Stats]:
    return Statement(
        "select ready, delayed, processing, dead_letters, "
        "pg_catalog.timestamptz_send(oldest_ready_at), published, completed, failed, abandoned, "
        "dead_lettered, attempts, average_ms, is_exact from headrace.stats(%s, %s, %s::interval)",
        (namespace, queue, interval(period, "period")),
        lambda rows: Stats(*_timed(rows[0], 4)),
    )


_QUEUE = """\
select name, state, takes, types, tags, all_tags, depth, filling, max_retries, backoff::text, max_queue_depth,
       high_watermark, batch_size, processing_interval, metadata::text,
       pg_catalog.timestamptz_send(created_at)
from headrace."""


def queue(namespace: str, name: str) -> Statement[Queue]:
    return Statement(_QUEUE + "queue(%s, %s)", (namespace, name), lambda rows: _queue(rows[0]))


def queues(namespace: str) -> Statement[list[Queue]]:
    return Statement(_QUEUE + "queues(%s)", (namespace,), lambda rows: list(map(_queue, rows)))


def _queue(row: Row) -> Queue:
    values = dict(zip(Queue.__struct_fields__, row, strict=True))
    values |= {name: values[name] and tuple(values[name]) for name in ("types", "tags")}
    values |= {name: _decode(values[name]) for name in ("backoff", "metadata")}
    values["processing_interval"] = timedelta(milliseconds=values["processing_interval"])
    values["created_at"] = instant(values["created_at"])
    return Queue(**values)


class NewQueue(NamedTuple):
    """The arguments of create_queue, in the engine's order."""

    name: str
    types: list[str] | None
    tags: list[str] | None
    all_tags: bool
    settings: dict[str, Any]
    since: str | None
    after: int | None


def create_queue(namespace: str, queue: NewQueue) -> Statement[bool]:
    name, types, tags, all_tags, settings, since, after = queue
    return Statement(
        "select headrace.create_queue(%s, %s, %s::text[], %s::text[], %s::boolean, %s::jsonb, "
        "%s::timestamptz, %s::bigint)",
        (namespace, name, types, tags, all_tags, _settings(settings), since, after),
        lambda rows: rows[0][0],
    )


def change_queue(namespace: str, name: str, settings: dict[str, Any]) -> Statement[None]:
    return _done("headrace.change_queue(%s, %s, %s::jsonb)", namespace, name, _settings(settings))


def delete_queue(namespace: str, name: str, with_deliveries: bool, actor: str) -> Statement[None]:
    return _done(
        "headrace.delete_queue(%s, %s, %s::boolean, %s)", namespace, name, with_deliveries, actor
    )


def _settings(given: dict[str, Any]) -> str:
    if given.get("processing_interval") is not None:
        exact = seconds(given["processing_interval"], "processing_interval") * 1000
        given = {**given, "processing_interval": round(exact)}
    return encode(given, "the settings of a queue").decode()


def pause(namespace: str, name: str) -> Statement[None]:
    return _done("headrace.pause(%s, %s)", namespace, name)


def resume(namespace: str, name: str) -> Statement[None]:
    return _done("headrace.resume(%s, %s)", namespace, name)


def drain(namespace: str, name: str) -> Statement[None]:
    return _done("headrace.drain(%s, %s)", namespace, name)


def _done(call: str, *params: Any) -> Statement[None]:
    return Statement(f"select {call}", params, lambda rows: None)


def has_capacity(namespace: str, type: str | None, tags: list[str] | None) -> Statement[bool]:
    return Statement(
        "select headrace.has_capacity(%s, %s, %s::text[])",
        (namespace, type, tags),
        lambda rows: rows[0][0],
    )


def register_node(
    namespace: str,
    node_id: str,
    instance: str,
    display_name: str | None,
    description: str | None,
    metadata: Mapping[str, Any],
    handles: list[str],
    worker: str,
) -> Statement[str]:
    """Gives the node's id as it is kept: what is not of `A-Za-z0-9._:-` becomes a hyphen."""
    return Statement(
        "select headrace.register_node(%s, %s, %s::uuid, %s, %s, %s::jsonb, %s::text[], %s)",
        (
            *(namespace, node_id, instance, display_name, description),
            *(encode(metadata, "the metadata of a node").decode(), handles, worker),
        ),
        lambda rows: rows[0][0],
    )


def touch_node_heartbeat(
    namespace: str, node_id: str, instance: str
) -> Statement[Literal["alive", "replaced", "missing"]]:
    return Statement(
        "select headrace.touch_node_heartbeat(%s, %s, %s::uuid)",
        (namespace, node_id, instance),
        lambda rows: rows[0][0],
    )


def unregister_node(namespace: str, node_id: str, instance: str) -> Statement[bool]:
    return Statement(
        "select headrace.unregister_node(%s, %s, %s::uuid)",
        (namespace, node_id, instance),
        lambda rows: rows[0][0],
    )


def nodes(namespace: str) -> Statement[list[NodeInfo]]:
    return Statement(
        "select node_id, alive, display_name, description, metadata::text, handles, worker, "
        "instance::text, pg_catalog.timestamptz_send(registered_at), "
        "pg_catalog.timestamptz_send(last_heartbeat), pg_catalog.timestamptz_send(stopped_at) "
        "from headrace.nodes(%s)",
        (namespace,),
        lambda rows: [_node(row) for row in rows],
    )


def _node(row: Row) -> NodeInfo:
    values = _timed(row, 8, 9, 10)
    values[4], values[5] = _decode(row[4]), tuple(row[5])
    return NodeInfo(*values)


# The instants are whole seconds, and as numbers they look the same to every driver.
_SELECT_TASKS = """\
select task_id::text, name, cron_expression, timezone, event_type, payload::text, event::text, missed, active,
       array(select pg_catalog.date_part('epoch', fire)::bigint from pg_catalog.unnest(next_fires) fire),
       pg_catalog.timestamptz_send(last_fire_at), pg_catalog.timestamptz_send(created_at),
       pg_catalog.timestamptz_send(updated_at), version, pg_catalog.timestamptz_send(planned_until),
       pg_catalog.timestamptz_send(at)
from headrace."""


class Unplanned(NamedTuple):
    """A task, and what must be known to work out its next instants."""

    task: ScheduledTask
    version: int
    planned_until: datetime
    at: datetime
    """The database's time when it answered."""


def _unplanned(row: Row) -> Unplanned:
    *values, version, planned_until, at = _timed(row, 10, 11, 12, 14, 15)
    values[5], values[6] = _decode(values[5]), _decode(values[6])
    values[9] = tuple(datetime.fromtimestamp(fire, UTC) for fire in values[9])
    return Unplanned(ScheduledTask(*values), version, planned_until, at)


class NewTask(NamedTuple):
    """The arguments of schedule_task, in the engine's order."""

    name: str
    cron_expression: str
    event_type: str
    payload: str
    timezone: str
    missed: str
    event: str


def schedule_task(namespace: str, task: NewTask) -> Statement[Unplanned]:
    return Statement(
        _SELECT_TASKS + "schedule_task(%s, %s, %s, %s, %s::jsonb, %s, %s, %s::jsonb)",
        (namespace, *task),
        lambda rows: _unplanned(rows[0]),
    )


def tasks_to_plan(namespace: str) -> Statement[list[Unplanned]]:
    return Statement(
        _SELECT_TASKS + "tasks_to_plan(%s)",
        (namespace,),
        lambda rows: [_unplanned(row) for row in rows],
    )


def plan_task(
    namespace: str, task_id: str, version: int, next_fires: Iterable[datetime]
) -> Statement[bool]:
    """False: it has become another schedule, or is gone."""
    fires = f"{{{','.join(fire.isoformat() for fire in next_fires)}}}"
    return Statement(
        "select headrace.plan_task(%s, %s::uuid, %s::int, %s::timestamptz[])",
        (namespace, task_id, version, fires),
        lambda rows: rows[0][0],
    )


def schedules(namespace: str) -> Statement[list[ScheduledTask]]:
    return Statement(
        _SELECT_TASKS + "schedules(%s)",
        (namespace,),
        lambda rows: [_unplanned(row).task for row in rows],
    )


def pause_schedule(namespace: str, name: str) -> Statement[None]:
    return _done("headrace.pause_schedule(%s, %s)", namespace, name)


def resume_schedule(namespace: str, name: str) -> Statement[Unplanned]:
    return Statement(
        _SELECT_TASKS + "resume_schedule(%s, %s)",
        (namespace, name),
        lambda rows: _unplanned(rows[0]),
    )


def run_schedule(namespace: str, name: str) -> Statement[int]:
    return Statement(
        "select headrace.run_schedule(%s, %s)", (namespace, name), lambda rows: rows[0][0]
    )


def remove_schedule(namespace: str, name: str) -> Statement[None]:
    return _done("headrace.remove_schedule(%s, %s)", namespace, name)


def tick(since: datetime | None = None, upkeep: bool = False) -> Statement[Tick]:
    return Statement(
        "select due, expired, fired, kept_up, more, pg_catalog.timestamptz_send(at) "
        "from headrace.tick(%s::timestamptz, %s::boolean)",
        (since or "-infinity", upkeep),
        lambda rows: Tick(*_timed(rows[0], 5)),
    )


def _instant(raw: bytes | None) -> datetime | None:
    return None if raw is None else instant(raw)


def _timed(row: Row, *places: int) -> list[Any]:
    values = list(row)
    for place in places:
        values[place] = _instant(row[place])
    return values
