"""Workers extend the lease of an attempt and finish it: completed, failed or released."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from headrace.engine import leases
from headrace.engine.arguments import error_text
from headrace.engine.finish import Reported, report_one
from headrace.errors import Busy, FinishConflict, LeaseLost
from headrace.model import Claim, Completed, Failed, LogEntry, Released, Result, Verdict
from headrace.server.api.values import (
    Absent,
    Attempt,
    Code,
    Count,
    Lease,
    WorkerId,
    known,
    moment,
    moment_or_none,
)
from headrace.server.http.operation import Call, Operation, answer
from headrace.server.http.refusal import Refusal

EXHAUSTED = "Max retries exceeded"
TRIES, PAUSE = 5, 0.02  # of a heartbeat while another transaction has the lease locked


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Names an attempt. `attempt` is the number from the claim; without it, the attempt is the
    one that the worker holds now, else the last one it held."""

    worker_id: WorkerId | None = None
    """Must be the worker that holds the event."""
    attempt: Attempt | None = None
    lease_token: UUID | None = None
    """The token from the claim. If given, it must match; a queue may require it
    (`require_lease_token`)."""


class Completion(Ended, frozen=True, kw_only=True):
    execution_time_ms: Count | None = None
    status_code: Code | None = None


class Failure(Completion, frozen=True, kw_only=True):
    error_message: str = ""
    retry_in: Annotated[float, Meta(ge=0, le=315360000)] | None = None
    """Seconds until the retry, instead of the delay of the retry policy."""
    reason: str | None = None
    """Do not retry: make the event a dead letter, for this reason."""


class Release(Ended, frozen=True, kw_only=True):
    delay: Annotated[float, Meta(ge=0, le=315360000)] | None = None
    """Snooze: seconds until the event is ready again, at least 0.1. Without it: at once."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """The entry that the request wrote to the log."""

    event_id: int
    worker_id: str | Absent = UNSET
    action: str
    status_code: int | Absent = UNSET
    error_message: str | Absent = UNSET
    execution_time_ms: int | Absent = UNSET
    retry_scheduled: bool | Absent = UNSET
    next_retry_at: str | Absent | None = UNSET
    created_at: str


class Exhausted(msgspec.Struct, frozen=True):
    """The failure was recorded; no retries are left."""

    error: str
    retry_count: int
    max_retries: int


async def complete_event(call: Call) -> Response:
    """Finish an attempt with success. Repeating the request gives the same answer."""
    body: Completion = call.body
    result = Completed(_named(call), body.execution_time_ms, body.status_code)
    verdict = await _report(call, result)
    return answer(_action(call, await _recorded(call, verdict), verdict))


async def fail_event(call: Call) -> Response:
    """Finish an attempt with a failure: the event is retried later, as its retry policy says.
    400 if no retries are left: the event is now a dead letter. Repeating the request gives the
    same answer."""
    body: Failure = call.body
    result = Failed(
        _named(call),
        body.error_message,
        body.execution_time_ms,
        body.status_code,
        retry_in=body.retry_in,
        reason=body.reason,
    )
    verdict = await _report(call, result)
    recorded = await _recorded(call, verdict)
    if verdict.retry_at is None and not recorded.is_given_up:
        counts = (verdict.retry_count or 0, verdict.max_retries or 0)
        return answer(Exhausted(EXHAUSTED, *counts), 400)
    return answer(
        msgspec.structs.replace(
            _action(call, recorded, verdict),
            error_message=recorded.error_message,
            retry_scheduled=verdict.retry_at is not None,
            next_retry_at=moment_or_none(verdict.retry_at),
        )
    )


async def release_event(call: Call) -> Response:
    """Return an event unfinished: it is ready again at once, or after `delay`, and no retry is used
    up. A snooze beyond the queue's `max_snoozes` counts as a failure: the answer's action says so."""
    body: Release = call.body
    verdict = await _report(call, Released(_named(call), delay=body.delay))
    action = _action(call, Recorded(verdict.action or "RELEASED"), verdict)
    if body.delay is not None:
        until = moment_or_none(verdict.retry_at)
        action = msgspec.structs.replace(action, next_retry_at=until)
    return answer(action)


async def start_event(call: Call) -> Response:
    """Write to the log that work on an event has begun; once per attempt."""
    claim = _named(call)
    try:
        at = await call.services.directory.at(claim.id).ask(
            leases.start(call.namespace, call.queue, claim, call.body.worker_id),
            lane="finish",
        )
    except LeaseLost:
        raise await _lost(call) from None
    return answer(_action(call, Recorded("STARTED"), Verdict("counted", at=at)))


class Beat(Ended, frozen=True, kw_only=True):
    lease: Lease | None = None
    """Seconds from now. Default: as many as the event was claimed for."""


class Beaten(msgspec.Struct, frozen=True, kw_only=True):
    """When the lease now ends."""

    event_id: int
    worker_id: str | Absent = UNSET
    lease_expires_at: str
    taken: dict[str, str] | Absent = UNSET
    """The events claimed together with this one that were taken away since, with the action:
    `CANCELLED`, `RESET` or `ERASED`. Stop working on them: their ends no longer count. Absent: none
    was."""


async def heartbeat(call: Call) -> Response:
    """Extend the lease of an event, and of all events claimed together with it: for another
    `lease` from now, or for as long as it was claimed for."""
    claim = _named(call)
    statement = leases.heartbeat_one(
        call.namespace, call.queue, claim, call.body.worker_id, call.body.lease
    )
    for _ in range(TRIES):
        extended = await call.services.directory.at(claim.id).ask(statement, lane="finish")
        if extended.lease_expires_at is not None:
            until = moment(extended.lease_expires_at)
            taken = {str(id): action for id, action in extended.taken.items()} or UNSET
            return answer(
                Beaten(
                    event_id=claim.id,
                    worker_id=_worker(call),
                    lease_expires_at=until,
                    taken=taken,
                )
            )
        if extended.state == "lost":
            raise await _lost(call)
        await asyncio.sleep(PAUSE)
    raise Busy(f"the lease of event {claim.id} is locked by another transaction: try again")


def _named(call: Call) -> Claim:
    body: Ended = call.body
    if body.worker_id is None and body.attempt is None:
        raise Refusal(
            400, "invalid_body", "The body has neither a worker_id nor an attempt: add one."
        )
    token = None if body.lease_token is None else str(body.lease_token)
    return Claim(call.event_id, body.attempt or 0, lease_token=token)


async def _report(call: Call, result: Result) -> Verdict:
    reported = report_one(call.namespace, call.queue, Reported(result, call.body.worker_id))
    directory = call.services.directory.at(result.claimed.id)
    verdict = await directory.ask(reported, lane="finish")
    if verdict.verdict == "lost":
        raise await _lost(call)
    if verdict.verdict == "conflict":
        at = moment_or_none(verdict.at)
        raise FinishConflict(
            f"this attempt of event {result.claimed.id} has already ended as {verdict.action} "
            f"at {at}",
            (result.claimed.id,),
        )
    return verdict


async def _lost(call: Call) -> LeaseLost:
    """Raises EventNotFound if the event does not exist."""
    event = await call.services.directory.of(call.namespace, call.queue, lane="finish").event(
        call.event_id
    )
    return LeaseLost(
        f"this worker does not hold event {event.id}, or no longer does: its status is "
        f"{event.status}, and nothing was changed",
        (event.id,),
    )


class Recorded(NamedTuple):
    """The end of an attempt, as the log has it."""

    action: str
    status_code: int | None = None
    execution_time_ms: int | None = None
    error_message: str = ""
    is_given_up: bool = False
    """The worker gave a reason not to retry, whatever the retry policy says."""


async def _recorded(call: Call, verdict: Verdict) -> Recorded:
    """From this request or, if the attempt had ended before, from the log of that time."""
    said: Any = call.body
    is_failure = isinstance(said, Failure)
    ended = Recorded(
        "FAILED" if is_failure else "COMPLETED",
        said.status_code,
        said.execution_time_ms,
        error_text(said.error_message) if is_failure else "",
        is_failure and said.reason is not None,
    )
    if verdict.verdict != "repeated":
        return ended
    client = call.services.directory.of(call.namespace, call.queue, lane="finish")
    entry = _entry_of(verdict, call.queue, await client.log(call.event_id))
    if entry is None:
        return ended
    is_given_up = ended.is_given_up
    if is_failure and verdict.retry_at is None:
        reason = (await client.event(call.event_id)).reason
        is_given_up = is_given_up if reason is None else reason != EXHAUSTED
    return Recorded(
        entry.action,
        entry.status_code,
        entry.execution_time_ms,
        entry.error_message or "",
        is_given_up,
    )


def _entry_of(verdict: Verdict, queue: str, log: list[LogEntry]) -> LogEntry | None:
    for entry in reversed(log):
        if (entry.queue, entry.action, entry.created_at) == (queue, verdict.action, verdict.at):
            return entry
    return None


def _action(call: Call, recorded: Recorded, verdict: Verdict) -> Action:
    assert verdict.at is not None
    return Action(
        event_id=call.event_id,
        worker_id=_worker(call),
        action=recorded.action,
        status_code=known(recorded.status_code),
        execution_time_ms=known(recorded.execution_time_ms),
        created_at=moment(verdict.at),
    )


def _worker(call: Call) -> Any:
    return known(call.body.worker_id)


OPERATIONS = (
    Operation(
        *("POST", "/events/{id}/start", start_event, "consume"),
        body=Ended,
        answers={200: Action},
    ),
    Operation(
        *("POST", "/events/{id}/heartbeat", heartbeat, "consume"),
        body=Beat,
        answers={200: Beaten},
    ),
    Operation(
        *("POST", "/events/{id}/complete", complete_event, "consume"),
        body=Completion,
        answers={200: Action},
    ),
    Operation(
        *("POST", "/events/{id}/fail", fail_event, "consume"),
        body=Failure,
        body_limit=1024 * 1024,
        answers={200: Action, 400: Exhausted},
    ),
    Operation(
        *("POST", "/events/{id}/release", release_event, "consume"),
        body=Release,
        answers={200: Action},
    ),
)
