"""Dead letters: looked at, by kind of error, and redriven."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from headrace import statements
from headrace.arguments import MAX_ID
from headrace.model import DeadLetter
from headrace.server.operations import Call, InQueue, Limit, Operation, Patterns, answer
from headrace.server.queues import Filter, Id, Object, Words
from headrace.server.steps import Stepped, take_steps
from headrace.server.wire import Absent, Moment, tag_string, told


class Letters(InQueue, frozen=True, kw_only=True):
    types: Patterns | None = None
    """A type may hold asterisks."""
    fingerprint: str | None = None
    """Only those of one kind of error."""
    since: Moment | None = None
    until: Moment | None = None
    limit: Limit = 20
    before: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    """Only events with lower ids, to page on."""
    payload: bool = False


class LetterBody(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that used up its attempts, or was given up, and why."""

    id: int
    type: str
    title: str
    description: str | None
    tags: str
    payload: Any | Absent
    priority: int
    status: Literal["FAILED", "COMPLETED_WITH_ERRORS"]
    reason: str
    error: str | None
    fingerprint: str | None
    """The same for errors of one kind."""
    attempts: int
    retry_count: int
    crashes: int
    max_retries: int
    created_at: str
    died_at: str
    key: str | None
    version: str | None
    source: dict[str, str] | None
    correlation_id: str | None
    causation_id: str | None
    trace_id: str | None
    producer: str | None
    scheduled_task_id: str | None
    scheduled_for: str | None
    backoff: Object | None
    headers: Object | None


class LetterList(msgspec.Struct, frozen=True):
    """Dead letters, the newest event first."""

    dead_letters: list[LetterBody]


async def list_dead_letters(call: Call) -> Response:
    """The dead letters of a queue, the newest event first."""
    query: Letters = call.query
    letters = await call.client.dead_letters(
        types=query.types,
        fingerprint=query.fingerprint,
        since=query.since,
        until=query.until,
        limit=query.limit,
        before=query.before,
        payload=query.payload,
    )
    return answer(LetterList([_letter(letter, payload=query.payload) for letter in letters]))


async def show_dead_letter(call: Call) -> Response:
    """One dead letter, with its payload, why it died and what it came from."""
    return answer(_letter(await call.client.dead_letter(call.event_id), payload=True))


class Groups(InQueue, frozen=True, kw_only=True):
    limit: Limit = 100


class GroupBody(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters whose errors are of one kind."""

    fingerprint: str | None
    message: str
    """What the last one said."""
    types: Words
    letters: int
    first_died_at: str
    last_died_at: str
    sample_ids: list[int]
    """The three that died last."""


class GroupList(msgspec.Struct, frozen=True):
    """Kinds of errors, the most frequent first."""

    groups: list[GroupBody]


async def list_dead_letter_groups(call: Call) -> Response:
    """The dead letters of a queue by kind of error, the most frequent kind first."""
    query: Groups = call.query
    groups = await call.client.dead_letter_groups(limit=query.limit)
    return answer(GroupList([told(GroupBody, group) for group in groups]))


class Redrive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters: all, or some by id, type or kind of error."""

    ids: list[Id] | None = None
    types: Filter | None = None
    fingerprint: str | None = None
    rate: Annotated[float, Meta(ge=0.000001, le=1000000)] | None = None
    """At most so many a second."""
    reason: str = ""


async def redrive(call: Call) -> Response:
    """Make dead letters of a queue deliveries again, the longest dead first. If it takes long, a part is done, and
    `more` says so: ask again."""
    body: Redrive = call.body

    def step(last: statements.Step | None) -> statements.Statement[statements.Step]:
        return statements.redrive(
            *(call.namespace, call.queue, body.ids, body.types, body.fingerprint, body.rate),
            *(body.reason, call.actor, last),
        )

    return answer(await take_steps(call, step))


def _letter(letter: DeadLetter, *, payload: bool) -> LetterBody:
    told_of = letter.payload if payload else UNSET
    return told(LetterBody, letter, tags=tag_string(letter.tags), payload=told_of)


OPERATIONS = (
    Operation(
        *("GET", "/dead-letters", list_dead_letters, "read", Letters), answers={200: LetterList}
    ),
    Operation(
        *("GET", "/dead-letters/groups", list_dead_letter_groups, "read", Groups),
        answers={200: GroupList},
    ),
    Operation(
        *("POST", "/dead-letters/redrive", redrive, "admin"),
        body=Redrive,
        body_limit=1024 * 1024,
        answers={200: Stepped},
    ),
    Operation("GET", "/dead-letters/{id}", show_dead_letter, "read", answers={200: LetterBody}),
)
