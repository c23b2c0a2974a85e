"""Work: claimed by a worker, begun, kept alive, and brought to an end."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from headrace import statements
from headrace.arguments import error_text
from headrace.errors import Busy, FinishConflict, LeaseLost
from headrace.model import (
    Claim,
    Claimed,
    Completed,
    Failed,
    LogEntry,
    Released,
    Result,
    Verdict,
)
from headrace.server.delivery import DELIVERY, Delivery
from headrace.server.failures import Refusal
from headrace.server.operations import NO_STORE, Call, InQueue, Operation, answer
from headrace.server.waiting import LONGEST, is_gone
from headrace.server.wire import (
    Absent,
    Attempt,
    ClaimedBody,
    Code,
    Count,
    Lease,
    Subscribed,
    WorkerId,
    claimed_body,
    moment,
    moment_or_none,
    subscribed,
    tag_list,
)
from headrace.statements import Reported

Wait: TypeAlias = Annotated[float, Meta(ge=0, le=LONGEST)]
Word: TypeAlias = Annotated[str, Meta(min_length=1)]
Words: TypeAlias = Annotated[list[Word], Meta(min_length=1, max_length=100)]
Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]

EXHAUSTED = "Max retries exceeded"
TRIES, PAUSE = 5, 0.02  # of a heartbeat whose lease somebody has locked for a moment


class Subscription(InQueue, frozen=True, kw_only=True):
    worker_id: WorkerId
    tags: Annotated[tuple[Word, ...], Meta(max_length=100)] | None = None
    """Any of them will do, unless `all_tags`; `*` is everything."""
    types: Annotated[tuple[Word, ...], Meta(max_length=100)] | None = None
    """A type may hold asterisks."""
    all_tags: bool = False
    lease: Lease | None = None
    """Seconds until somebody else may have it, unless there is a heartbeat; else what the queue says, the server, or 60."""
    wait: Wait = 0
    """Seconds to wait for an event if there is none."""


async def subscribe(call: Call) -> Response:
    """Claim one event for a worker; 204 if there is none. It is the worker's until its lease ends."""
    query: Subscription = call.query
    if query.tags is None and query.types is None:
        raise Refusal(400, "invalid_query", "The query names tags, or types; tags=* is everything.")
    found = await _claim(call, query, query.tags, 1)
    return answer(subscribed(found[0])) if found else Response(status_code=204, headers=NO_STORE)


class NewClaim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a worker wants to have."""

    worker_id: WorkerId
    tags: Word | Words | None = None
    types: Words | None = None
    all_tags: bool = False
    limit: Limit = 1
    lease: Lease | None = None
    """Seconds; else what the queue says, the server, or 60."""
    wait: Wait = 0


class ClaimedList(msgspec.Struct, frozen=True):
    """The events that the worker now holds."""

    events: list[ClaimedBody]


async def claim_events(call: Call) -> Response:
    """Claim up to `limit` events for a worker, the most urgent first; those that are claimed together are kept
    alive together."""
    body: NewClaim = call.body
    found = await _claim(call, body, tag_list(body.tags), body.limit)
    return answer(ClaimedList([claimed_body(one) for one in found]))


async def _claim(
    call: Call, asked: Subscription | NewClaim, tags: Any, limit: int
) -> list[Claimed]:
    client, waiting = call.client, call.services.waiting
    types = list(asked.types) if asked.types else None
    tags = None if not tags or "*" in tags else list(tags)
    lease = asked.lease or await _default_lease(call)

    async def look() -> list[Claimed]:
        return await client.poll(
            types=types,
            tags=tags,
            all_tags=asked.all_tags,
            max_events=limit,
            lease=lease,
            each=True,
            worker=asked.worker_id,
        )

    async with waiting.patience(call.request, asked.wait) as patience:
        found = await waiting.until_found(
            look,
            patience,
            namespace=call.namespace,
            queue=call.queue,
            filter=msgspec.json.encode((types, tags, asked.all_tags)),
        )
        gone = patience.is_gone if asked.wait else found and await is_gone(call.request)
    if not found:
        return []

    async def hand_back() -> None:
        await client.finish([Released(one) for one in found])

    delivery: Delivery | None = call.request.scope.get(DELIVERY)
    if gone or (delivery is not None and delivery.is_hopeless):  # nobody is there to work on it
        await hand_back()
        return []
    # Else the lease would run out, and be charged as if a worker had died of the event.
    if delivery is not None:
        delivery.on_failure(lambda: call.services.later(hand_back))
    return found


async def _default_lease(call: Call) -> float | None:
    """None: what the engine says, which knows the queue."""
    usual = call.services.limits.lease
    if usual is None:
        return None
    queue = await call.services.directory.settings(call.namespace, call.queue)
    return usual if queue.lease is None else None


class Ended(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Whose attempt it is: `attempt` is the one that the claim gave. Without it, the claim is meant that the worker
    holds now, else the last one it held."""

    worker_id: WorkerId | None = None
    """It must be the holder's."""
    attempt: Attempt | None = None
    lease_token: UUID | None = None
    """The one that the claim gave. It must fit; a queue may require it (`require_lease_token`)."""


class Completion(Ended, frozen=True, kw_only=True):
    execution_time_ms: Count | None = None
    status_code: Code | None = None


class Failure(Completion, frozen=True, kw_only=True):
    error_message: str = ""
    retry_in: Annotated[float, Meta(ge=0, le=315360000)] | None = None
    """Seconds, instead of what the retry policy says."""
    reason: str | None = None
    """Give it up now, and why."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, as the log has it."""

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
    """The failure is noted, and it was the last one that is allowed."""

    error: str
    retry_count: int
    max_retries: int


async def complete_event(call: Call) -> Response:
    """End an attempt well. The same again gives the same answer."""
    body: Completion = call.body
    result = Completed(_named(call), body.execution_time_ms, body.status_code)
    verdict = await _report(call, result)
    return answer(_action(call, await _recorded(call, verdict), verdict))


async def fail_event(call: Call) -> Response:
    """End an attempt badly: it is tried again later, as its retry policy says. 400 if that is used up: then it is
    a dead letter. The same again gives the same answer."""
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
    """Hand an event back unfinished: it is ready again at once, and nothing is charged."""
    verdict = await _report(call, Released(_named(call)))
    return answer(_action(call, Recorded("RELEASED"), verdict))


async def start_event(call: Call) -> Response:
    """Note in the log that work on an event has begun; once for an attempt."""
    claim = _named(call)
    try:
        at = await call.services.directory.ask(
            statements.start(call.namespace, call.queue, claim, call.body.worker_id),
            lane="finish",
        )
    except LeaseLost:
        raise await _lost(call) from None
    return answer(_action(call, Recorded("STARTED"), Verdict("counted", at=at)))


class Beat(Ended, frozen=True, kw_only=True):
    lease: Lease | None = None
    """Seconds from now; else as many as it was claimed for."""


class Beaten(msgspec.Struct, frozen=True, kw_only=True):
    """Until when the event is the worker's."""

    event_id: int
    worker_id: str | Absent = UNSET
    lease_expires_at: str


async def heartbeat(call: Call) -> Response:
    """Keep an event, and all that was claimed together with it, for another `lease` from now, or for as long as it
    was claimed for."""
    claim = _named(call)
    statement = statements.heartbeat(
        call.namespace, call.queue, claim, call.body.worker_id, call.body.lease
    )
    for _ in range(TRIES):
        extended = await call.services.directory.ask(statement, lane="finish")
        if extended.lease_expires_at is not None:
            until = moment(extended.lease_expires_at)
            return answer(
                Beaten(event_id=claim.id, worker_id=_worker(call), lease_expires_at=until)
            )
        if extended.state == "lost":
            raise await _lost(call)
        await asyncio.sleep(PAUSE)
    raise Busy(f"somebody has the lease on event {claim.id} locked: try again")


def _named(call: Call) -> Claim:
    body: Ended = call.body
    if body.worker_id is None and body.attempt is None:
        raise Refusal(400, "invalid_body", "The body names a worker_id, or an attempt.")
    token = None if body.lease_token is None else str(body.lease_token)
    return Claim(call.event_id, body.attempt or 0, lease_token=token)


async def _report(call: Call, result: Result) -> Verdict:
    verdict = await call.services.gathering.report(
        call.namespace, call.queue, Reported(result, call.body.worker_id)
    )
    if verdict.verdict == "lost":
        raise await _lost(call)
    if verdict.verdict == "conflict":
        at = moment_or_none(verdict.at)
        raise FinishConflict(
            f"this attempt of event {result.claimed.id} has already ended as {verdict.action} at {at}",
            (result.claimed.id,),
        )
    return verdict


async def _lost(call: Call) -> LeaseLost:
    """Raises instead, if there is no such event."""
    event = await call.services.directory.of(call.namespace, call.queue, lane="finish").event(
        call.event_id
    )
    return LeaseLost(
        f"the claim on event {event.id} is not, or no longer, this worker's: it is {event.status}, and "
        "nothing was changed",
        (event.id,),
    )


class Recorded(NamedTuple):
    """What the log has of the end of an attempt."""

    action: str
    status_code: int | None = None
    execution_time_ms: int | None = None
    error_message: str = ""
    is_given_up: bool = False
    """For a reason of the worker's, whatever the retry policy says."""


async def _recorded(call: Call, verdict: Verdict) -> Recorded:
    """What this request has said, or, if the attempt had ended before, what was said then."""
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
        status_code=_given(recorded.status_code),
        execution_time_ms=_given(recorded.execution_time_ms),
        created_at=moment(verdict.at),
    )


def _worker(call: Call) -> Any:
    return _given(call.body.worker_id)


def _given(value: Any) -> Any:
    return UNSET if value is None else value


OPERATIONS = (
    Operation(
        *("GET", "/events/subscribe", subscribe, "consume", Subscription),
        answers={200: Subscribed, 204: None},
    ),
    Operation(
        *("POST", "/events/claim", claim_events, "consume"),
        body=NewClaim,
        answers={200: ClaimedList},
    ),
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
        body=Ended,
        answers={200: Action},
    ),
)
