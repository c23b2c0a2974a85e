"""Dead letters: listed, grouped by error, and redriven."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta
from starlette.responses import Response

from headrace.engine import administer, dead_letters, statement
from headrace.engine.arguments import MAX_ID
from headrace.model import DeadLetter, DeadLetterGroup
from headrace.server.api.values import Absent, Filter, Id, Moment, shape_of, tag_string, told
from headrace.server.http.operation import (
    Call,
    InQueue,
    Limit,
    Operation,
    Patterns,
    Stepped,
    answer,
    take_steps,
)


class Letters(InQueue, frozen=True, kw_only=True):
    types: Patterns | None = None
    """Event types; asterisks are wildcards."""
    fingerprint: str | None = None
    """Only dead letters of this error group."""
    since: Moment | None = None
    until: Moment | None = None
    limit: Limit = 20
    before: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    """Only events with lower ids: for the next page."""
    payload: bool = False


class LetterBody(shape_of(DeadLetter)):  # type: ignore[misc]
    """A delivery that has no retries left, or was given up, and why."""

    tags: str
    payload: Any | Absent


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
    """One dead letter, with its payload, its error and its origin."""
    return answer(_letter(await call.client.dead_letter(call.event_id), payload=True))


class Groups(InQueue, frozen=True, kw_only=True):
    limit: Limit = 100


class GroupBody(shape_of(DeadLetterGroup)):  # type: ignore[misc]
    """Dead letters with the same kind of error."""


class GroupList(msgspec.Struct, frozen=True):
    """Error groups, the most frequent first."""

    groups: list[GroupBody]


async def list_dead_letter_groups(call: Call) -> Response:
    """The dead letters of a queue grouped by error, the most frequent first."""
    query: Groups = call.query
    groups = await call.client.dead_letter_groups(limit=query.limit)
    return answer(GroupList([told(GroupBody, group) for group in groups]))


class Redrive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The dead letters to retry: all, or by id, type or error group."""

    ids: list[Id] | None = None
    types: Filter | None = None
    fingerprint: str | None = None
    rate: Annotated[float, Meta(ge=0.000001, le=1000000)] | None = None
    """Rate limit: dead letters per second."""
    reason: str = ""


async def redrive(call: Call) -> Response:
    """Retry dead letters of a queue, the oldest first. If there are very many, some are redriven
    and `more` is true: repeat the request."""
    body: Redrive = call.body

    def step(last: administer.Step | None) -> statement.Statement[administer.Step]:
        return dead_letters.redrive(
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
