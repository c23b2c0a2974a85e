"""Claiming, finishing, heartbeats, and what time makes due."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from headrace.arguments import MAX_ID, MAX_INT, array, error_text, interval, seconds
from headrace.backoff import policy
from headrace.encoding import encode
from headrace.errors import (
    InvalidInput,
    InvalidPayload,
)
from headrace.model import (
    AnyClaim,
    Claim,
    Claimed,
    Completed,
    CutOff,
    Dispatch,
    Duration,
    Extended,
    Failed,
    Released,
    Result,
    Tick,
    Verdict,
    instant,
    told,
)
from headrace.statements.base import (
    Row,
    Statement,
    decode,
    done,
    instant_or_none,
    timed,
)

_TOKEN = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_decode_parts = msgspec.json.Decoder(list[msgspec.Raw]).decode
_SIGNS = re.compile(
    rb'"(?:[^"\\]|\\.)*"|[\[\]{},]'
)  # strings as a whole: what is in them is no sign


# Times are fetched as the 8 bytes they are: Python makes a datetime only of those that are looked at.
_POLL = """\
select ids, payloads, details, type, tags, attempt, priority, retry_count, crashes, max_retries, created,
       lease, held, pg_catalog.timestamptz_send(lease_expires_at), lease_token::pg_catalog.text,
       pg_catalog.timestamptz_send(processing_started_at), hints
from headrace.poll_batch(%s, %s, %s::pg_catalog.text[], %s::pg_catalog.text[], %s::boolean, %s, %s::int, %s::interval,
                         %s::boolean, %s::boolean, %s, %s::boolean, %s::pg_catalog.uuid, %s)"""


class Poll(NamedTuple):
    """The arguments of poll that its caller gives, in the engine's order."""

    types: list[str] | None
    tags: list[str] | None
    all_tags: bool
    worker: str
    max_events: int
    lease: timedelta | None
    """None: as long as the queue says."""
    each: bool
    suspects: bool
    instance: str | None = None
    """The start of the node that claims. The engine has this and what follows after hints and sweep."""
    dispatch: Dispatch = "atomic"


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
    return Statement(
        _POLL,
        (namespace, queue, *poll[:-2], hints, sweep, poll.instance, poll.dispatch),
        partial(_read_polled, namespace),
    )


_ORDER = attrgetter("priority", "id")  # in which rows that name several have to be read


def _read_polled(namespace: str, rows: list[Row]) -> Polled:
    polled = Polled([], [], next((hints for *_, hints in rows if hints), None))
    for row in rows:
        try:
            polled.claimed.extend(_claimed(namespace, row))
        except Exception:
            _read_one_by_one(namespace, row, polled)
    if 1 < len(rows) < len(polled.claimed) + len(polled.unreadable):
        polled.claimed.sort(key=_ORDER)
    return polled


# fmt: off
def _claimed(namespace: str, row: Row) -> list[Claimed]:
    (ids, payloads, details, type, tags, attempt, priority, retry_count, crashes, max_retries, created,
     lease, held, expires, token, started, _) = row
    tags = tuple(tags) if tags else ()
    expires_at = instant(expires)
    moments = repeat(created) if len(created) == 8 else _in_eights(created)
    return [
        Claimed(id, attempt, lease, held, type, tags, payload, priority, retry_count, crashes,
                max_retries, expires_at, created_at, detail, token, namespace, started)
        for id, payload, created_at, detail in zip(
            ids, decode(payloads), moments, _parts(details) if details else repeat(None), strict=False
        )
    ]
# fmt: on


def _read_one_by_one(namespace: str, row: Row, polled: Polled) -> None:
    ids, payloads, details, *alike, created, lease, held, expires, token, started, hints = row
    for place, (id, payload) in enumerate(zip(ids, _parts(payloads), strict=True)):
        moment = created if len(created) == 8 else _in_eights(created)[place]
        rest = (*alike, moment, lease, held, expires, token, started, hints)
        try:
            detail = b"[%s]" % _parts(details)[place] if details else None
            polled.claimed.extend(_claimed(namespace, ([id], b"[%s]" % payload, detail, *rest)))
        except Exception as error:
            (blank,) = _claimed(namespace, ([id], b"[null]", None, *rest))
            reason = "Its payload cannot be read"
            polled.unreadable.append(Failed(blank, f"{reason}: {error}", reason=reason))


def _parts(array: str | bytes) -> list[bytes]:
    """The elements of a JSON array, undecoded."""
    try:
        return [bytes(part) for part in _decode_parts(array)]
    except RecursionError:
        return _split(array.encode() if isinstance(array, str) else array)


def _split(array: bytes) -> list[bytes]:
    """The same, however deep they are."""
    parts, depth, start = [], 0, 1
    for sign in _SIGNS.finditer(array):
        match sign[0]:
            case b"[" | b"{":
                depth += 1
            case b"]" | b"}":
                depth -= 1
        if depth == 0 or (depth == 1 and sign[0] == b","):
            parts.append(array[start : sign.start()].strip())
            start = sign.end()
    return parts


def _in_eights(times: bytes) -> list[bytes]:
    return [times[at : at + 8] for at in range(0, len(times), 8)]


_FINISH = """\
select item, verdict, action, pg_catalog.timestamptz_send(at), pg_catalog.timestamptz_send(retry_at),
       retry_count, max_retries
from headrace.finish(%s, %s, %s::bigint[], %s::int[], %s::bigint[], %s::int[], %s::int[], %s::pg_catalog.jsonb, %s::pg_catalog.text[])"""

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
    namespace: str,
    queue: str,
    lease: int,
    size: int,
    ms: int | None,
    code: int | None,
    token: str | None,
) -> Statement[bool]:
    """A complete of all that a lease covers; False: some of it has ended, and nothing was done."""
    return Statement(
        "select headrace.complete_lease(%s, %s, %s::bigint, %s::int, %s::int, %s::int, %s)",
        (namespace, queue, lease, size, _milliseconds(ms), code, token),
        lambda rows: rows[0][0],
    )


def complete_held(
    namespace: str, queue: str, claim: AnyClaim, ms: int | None, code: int | None
) -> Statement[bool] | None:
    """A complete of one that is held on its own; False: it is not any more, and nothing was done. None: there
    can be no such claim."""
    if _proofs([claim]) is None:
        return None
    return Statement(
        "select headrace.complete_held(%s, %s, %s::bigint, %s::int, %s::int, %s::int, %s)",
        (namespace, queue, claim.id, claim.attempt, _milliseconds(ms), code, claim.lease_token),
        lambda rows: rows[0][0],
    )


class Proofs(NamedTuple):
    """Claims, column by column."""

    ids: list[int]
    attempts: list[int]
    leases: list[int | None]
    """None for one that is held on its own."""
    tokens: list[str | None]


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
                verdict,
                action,
                instant_or_none(at),
                instant_or_none(retry_at),
                retry_count,
                max_retries,
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
            _in_common(proofs.tokens),
        ),
        read,
    )


def finalized(namespace: str, queue: str, id: int) -> Statement[Verdict | None]:
    """How an event has ended for good; None: it has not."""
    return Statement(
        "select action, pg_catalog.timestamptz_send(at), retry_count, max_retries "
        "from headrace.finalized(%s, %s::bigint, %s) where action is not null",
        (namespace, id, queue),
        lambda rows: next(
            (
                Verdict("repeated", action, instant_or_none(at), None, retry_count, max_retries)
                for action, at, retry_count, max_retries in rows
            ),
            None,
        ),
    )


# The function is called with what the mark's row says, so it is not called without that row.
_COMPLETE_INSIDE = """\
with here as materialized (
    select %s::pg_catalog.text as namespace where pg_catalog.current_setting('headrace.attempt', true) operator(pg_catalog.=) %s)
select null as verdict, null::int as item from here
union all
select f.verdict, f.item
from here, lateral headrace.finish(
    here.namespace, %s, %s::bigint[], %s::int[], null, %s::int[], lease_tokens => %s::pg_catalog.text[]) f"""


_SAVE_INSIDE = """\
with here as materialized (
    select %s::pg_catalog.text as namespace where pg_catalog.current_setting('headrace.attempt', true) operator(pg_catalog.=) %s)
select null, saved.* from here, lateral headrace.save_progress(
    here.namespace, %s::bigint, %s::int, %s::pg_catalog.jsonb, %s, lease_token => %s) saved"""


class Inside(NamedTuple):
    """What became of a completion in a transaction of a handler's."""

    is_ours: bool
    """The transaction is still the one that was begun for it."""
    lost: list[int]
    """Events whose attempts were not the current ones."""


def complete_inside(
    namespace: str, queue: str, mark: str, claims: Sequence[Claimed], ms: int
) -> Statement[Inside]:
    """Complete held attempts in the transaction that was marked as theirs, and nothing in any other."""
    if len(claims) > 1:
        return _complete_all_inside(namespace, queue, mark, claims, ms)
    (claim,) = claims
    return Statement(
        "select headrace.complete_held(%s, %s, %s::bigint, %s::int, %s::int, null, %s) "
        "where pg_catalog.current_setting('headrace.attempt', true) operator(pg_catalog.=) %s",
        (namespace, queue, claim.id, claim.attempt, _milliseconds(ms), claim.lease_token, mark),
        lambda rows: Inside(bool(rows), [claim.id for (held,) in rows if not held]),
    )


# What node.lending compares at the end of a handler: `reset all` does not undo it, or too late for the next transaction.
SESSION_STATE = (
    "current_user, session_user, pg_catalog.pg_my_temp_schema(), "
    "pg_catalog.current_setting('default_transaction_isolation'), "
    "pg_catalog.current_setting('default_transaction_read_only'), "
    "pg_catalog.current_setting('default_transaction_deferrable'), "
    "pg_catalog.current_setting('statement_timeout'), "
    "pg_catalog.current_setting('idle_session_timeout')"
)
NOT_HELD, ELSEWHERE = "not held", "elsewhere"  # which are no booleans
_COMPLETE_OR_FAIL = f"""\
select (case when (pg_catalog.current_setting('headrace.attempt', true) operator(pg_catalog.=) %s) is not true then '{ELSEWHERE}'
             when headrace.complete_held(%s, %s, %s::bigint, %s::int, %s::int, null, %s) then 'true'
             else '{NOT_HELD}' end)::boolean,
       {SESSION_STATE}"""


def complete_or_fail(
    namespace: str, queue: str, mark: str, claim: Claimed, ms: int
) -> Statement[bool]:
    """The same for one, with an error where it cannot be done: that NOT_HELD, or ELSEWHERE, is no boolean. So a COMMIT can be
    sent with it, which is not executed after an error. Its row has SESSION_STATE, too."""
    proof = (claim.id, claim.attempt, _milliseconds(ms), claim.lease_token)
    params = (mark, namespace, queue, *proof)
    return Statement(_COMPLETE_OR_FAIL, params, lambda rows: bool(rows[0][0]))


def _complete_all_inside(
    namespace: str, queue: str, mark: str, claims: Sequence[Claimed], ms: int
) -> Statement[Inside]:
    return Statement(
        _COMPLETE_INSIDE,
        (
            namespace,
            mark,
            queue,
            array([claim.id for claim in claims]),
            array([claim.attempt for claim in claims]),
            array([_milliseconds(ms)] * len(claims)),
            _in_common([claim.lease_token for claim in claims]),
        ),
        lambda rows: Inside(
            bool(rows),
            [claims[item - 1].id for verdict, item in rows if verdict not in (None, "counted")],
        ),
    )


def save_inside(
    namespace: str, queue: str, mark: str, claim: Claimed, progress: Any
) -> Statement[Inside]:
    """Save progress in the transaction that was marked as the attempt's, and nothing in any other."""
    value = encode(progress, "the progress", InvalidPayload).decode()
    return Statement(
        _SAVE_INSIDE,
        (namespace, mark, claim.id, claim.attempt, value, queue, claim.lease_token),
        lambda rows: Inside(bool(rows), []),
    )


def started_within(seconds: float) -> Statement[bool]:
    """Whether the server itself was started so lately."""
    return Statement(
        "select pg_catalog.pg_postmaster_start_time() operator(pg_catalog.>) "
        "(pg_catalog.clock_timestamp() operator(pg_catalog.-) pg_catalog.make_interval(secs => %s))",
        (seconds,),
        lambda rows: bool(rows[0][0]),
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
        [claim.lease_token for claim in claims],
    )
    try:
        possible = (
            _within(MAX_ID, proofs.ids)
            and _within(MAX_INT, proofs.attempts)
            and _within(MAX_ID, {lease for lease in set(proofs.leases) if lease is not None})
            and all(map(is_token, set(proofs.tokens)))
        )
    except TypeError as error:
        raise InvalidInput(
            f"id, attempt and lease of a claim are numbers, its lease_token is a text: {error}"
        ) from error
    return proofs if possible else None


def is_token(given: str | None) -> bool:
    """Whether a lease can have this token; None: it is not said."""
    return given is None or _TOKEN.fullmatch(given) is not None


def _in_common(tokens: list[str | None]) -> list[str | None] | None:
    """One for all, if it is the same; None if there is none."""
    different = set(tokens)
    if len(different) > 1:
        return tokens
    return None if different <= {None} else list(different)


def _within(most: int, numbers: Collection[int]) -> bool:
    return not numbers or (min(numbers) > 0 and max(numbers) <= most)


def _other(result: Result) -> dict[str, Any]:
    if isinstance(result, Completed):
        return {"action": "complete"}
    if isinstance(result, Released):
        released = {"action": "release", "progress": result.progress}
        return {name: value for name, value in released.items() if value is not None}
    if isinstance(result, CutOff):
        abandoned = {
            "action": "abandon",
            "error": error_text(result.error),
            "max_retries": result.max_retries,
            "last_reason": result.last_reason,
            "status": result.status,
            "progress": result.progress,
        }
        return {name: value for name, value in abandoned.items() if value is not None}
    other = {
        "action": "fail",
        "error": error_text(result.error),
        "retry_in": None if result.retry_in is None else seconds(result.retry_in, "retry_in"),
        "max_retries": result.max_retries,
        "backoff": None if result.backoff is None else policy(result.backoff),
        "reason": None if result.reason is None else error_text(result.reason),
        "last_reason": None if result.last_reason is None else error_text(result.last_reason),
        "status": result.status,
        "progress": result.progress,
    }
    return {name: value for name, value in other.items() if value is not None}


def _milliseconds(given: float | None) -> int | None:
    return None if given is None else min(max(int(given), 0), MAX_INT)


def _unless_all_none(numbers: list[int | None]) -> str | None:
    return None if numbers.count(None) == len(numbers) else array(numbers)


def extend(
    namespace: str, queue: str, tokens: Mapping[int, str | None], lease: Duration | None
) -> Statement[dict[int, Extended]]:
    """What became of each lease. `tokens`: by lease."""
    return Statement(
        "select lease, state, pg_catalog.timestamptz_send(lease_expires_at) "
        "from headrace.extend(%s, %s, %s::bigint[], %s::interval, %s::pg_catalog.text[])",
        (namespace, queue, array(list(tokens)), _length(lease), list(tokens.values())),
        lambda rows: {row[0]: Extended(row[1], instant_or_none(row[2])) for row in rows},
    )


def _length(lease: Duration | None) -> timedelta | None:
    """None: as long as it was claimed for."""
    return None if lease is None else interval(lease, "lease")


def fall_asleep(namespace: str, queue: str) -> Statement[str | None]:
    """Gives the channel on which this session is notified of work."""
    return Statement(
        "select headrace.fall_asleep(%s, %s)", (namespace, queue), lambda rows: rows[0][0]
    )


def wake_up(channel: str) -> Statement[bool]:
    return Statement("select headrace.wake_up(%s)", (channel,), lambda rows: rows[0][0])


class Reported(NamedTuple):
    """The end of an attempt, told by somebody who may know no more than the event and a name."""

    result: Result
    """Its claim's attempt is 0 where it is not known."""
    worker: str | None


_REPORT = """\
select item, verdict, action, pg_catalog.timestamptz_send(at), pg_catalog.timestamptz_send(retry_at),
       retry_count, max_retries
from headrace.report(%s, %s, %s::bigint[], %s::int[], %s::pg_catalog.text[], %s::int[], %s::int[], %s::pg_catalog.jsonb, %s::pg_catalog.text[])"""


def report(namespace: str, queue: str, reports: Sequence[Reported]) -> Statement[list[Verdict]]:
    """Verdicts come in the order of the reports."""
    results = [reported.result for reported in reports]
    others = {
        str(item): _other(result)
        for item, result in enumerate(results, 1)
        if not isinstance(result, Completed)
    }

    def read(rows: list[Row]) -> list[Verdict]:
        verdicts = {item: Verdict(*timed(tuple(row), 2, 3)) for item, *row in rows}
        return [verdicts[item] for item in range(1, len(results) + 1)]

    return Statement(
        _REPORT,
        (
            namespace,
            queue,
            array([result.claimed.id for result in results]),
            array([result.claimed.attempt or None for result in results]),
            [reported.worker for reported in reports],
            array([_milliseconds(result.execution_time_ms) for result in results]),
            array([result.status_code for result in results]),
            encode(others, "a result").decode() if others else None,
            _in_common([result.claimed.lease_token for result in results]),
        ),
        read,
    )


def start(namespace: str, queue: str, claim: Claim, worker: str | None) -> Statement[datetime]:
    return Statement(
        "select pg_catalog.timestamptz_send(headrace.start(%s, %s::bigint, %s::int, %s, %s, %s))",
        (namespace, claim.id, claim.attempt or None, worker, queue, claim.lease_token),
        lambda rows: instant(rows[0][0]),
    )


def heartbeat(
    namespace: str, queue: str, claim: Claim, worker: str | None, lease: Duration | None
) -> Statement[Extended]:
    return Statement(
        "select state, pg_catalog.timestamptz_send(lease_expires_at) "
        "from headrace.heartbeat(%s, %s::bigint, %s::int, %s, %s, %s::interval, %s)",
        (
            *(namespace, claim.id, claim.attempt or None, worker, queue),
            *(_length(lease), claim.lease_token),
        ),
        lambda rows: Extended(rows[0][0], instant_or_none(rows[0][1])),
    )


def resolve(namespace: str, queue: str, event: int, attempt: int) -> Statement[str | None]:
    return Statement(
        "select headrace.resolve(%s, %s, %s::bigint, %s::int)",
        (namespace, queue, event, attempt),
        lambda rows: rows[0][0],
    )


def save_progress(namespace: str, queue: str, claim: AnyClaim, progress: Any) -> Statement[None]:
    return done(
        "headrace.save_progress(%s, %s::bigint, %s::int, %s::pg_catalog.jsonb, %s, %s::bigint, %s)",
        namespace,
        claim.id,
        claim.attempt,
        encode(progress, "the progress", InvalidPayload).decode(),
        queue,
        None if claim.held else claim.lease,
        claim.lease_token,
    )


def progress(namespace: str, queue: str, ids: Sequence[int]) -> Statement[dict[int, Any]]:
    """What was saved, by event; those of which nothing is kept are left out."""
    return Statement(
        "select event, progress::pg_catalog.text from headrace.progress(%s, %s::bigint[], %s)",
        (namespace, array(ids), queue),
        lambda rows: {id: told(text) for id, text in rows},
    )


def tick(since: datetime | None = None, upkeep: bool = False) -> Statement[Tick]:
    return Statement(
        "select due, expired, fired, kept_up, more, pg_catalog.timestamptz_send(at) "
        "from headrace.tick(%s::pg_catalog.timestamptz, %s::boolean)",
        (since or "-infinity", upkeep),
        lambda rows: Tick(*timed(rows[0], 5)),
    )
