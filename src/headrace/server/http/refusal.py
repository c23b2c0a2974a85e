"""Errors as answers: a status, a stable code, a sentence."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import msgspec
import psycopg
from psycopg_pool import PoolClosed, TooManyRequests
from starlette.requests import Request
from starlette.responses import Response

from headrace import errors
from headrace.driver.explain import NoConnection
from headrace.server.limits import ShareUsedUp

logger = logging.getLogger("headrace.server")

LONGEST = 500  # characters of a sentence
WARN_EVERY = 30.0  # seconds
# A browser must never take the content of events for a page or a script.
NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
SOON = "1"  # seconds after which a client should try again

# The nearest base class of an error decides.
TABLE: dict[type[Exception], tuple[int, str]] = {
    errors.InvalidInput: (400, "invalid_input"),
    errors.InvalidPayload: (400, "invalid_payload"),
    errors.PayloadTooLarge: (413, "payload_too_large"),
    errors.NotFound: (404, "not_found"),
    errors.NamespaceNotFound: (404, "namespace_not_found"),
    errors.QueueNotFound: (404, "queue_not_found"),
    errors.EventNotFound: (404, "event_not_found"),
    errors.ScheduleNotFound: (404, "schedule_not_found"),
    errors.TokenNotFound: (404, "token_not_found"),
    errors.CursorNotFound: (410, "cursor_not_found"),
    errors.LeaseLost: (409, "lease_lost"),
    errors.FinishConflict: (409, "finish_conflict"),
    errors.Conflict: (409, "conflict"),
    errors.AlreadyEnded: (409, "already_ended"),
    errors.NotEnded: (409, "not_ended"),
    errors.UniqueKeyHeld: (409, "unique_key_held"),
    errors.Busy: (409, "busy"),
    errors.WrongShard: (421, "wrong_shard"),
    errors.IdempotencyConflict: (409, "idempotency_conflict"),
    errors.QueueFull: (429, "queue_full"),
    errors.QueueDraining: (503, "queue_draining"),
    errors.QueueExists: (409, "queue_exists"),
    errors.QueueNotEmpty: (409, "queue_not_empty"),
    errors.NamespaceNotEmpty: (409, "namespace_not_empty"),
    errors.QueueNotPaused: (409, "queue_not_paused"),
    errors.SchemaError: (503, "schema_mismatch"),
    errors.SequenceBehind: (503, "sequence_behind"),
    errors.NotStored: (503, "database_unavailable"),
    errors.OutcomeUnknown: (504, "outcome_unknown"),
    ShareUsedUp: (429, "share_used_up"),
    NoConnection: (503, "overloaded"),
    TooManyRequests: (503, "overloaded"),
    PoolClosed: (503, "stopping"),
    psycopg.errors.QueryCanceled: (503, "overloaded"),
    psycopg.errors.LockNotAvailable: (503, "overloaded"),
    psycopg.errors.DeadlockDetected: (503, "overloaded"),
    psycopg.errors.SerializationFailure: (503, "overloaded"),
    psycopg.Error: (503, "database_unavailable"),
}

# The details of these belong in the log of the server, not in the answer.
_SENTENCES = {
    "overloaded": "The server is overloaded: try again.",
    "share_used_up": "This token or namespace uses its maximum of connections: try again.",
    "database_unavailable": "The database is unreachable or does not commit: try again.",
    "outcome_unknown": "The connection to the database broke, so the outcome is unknown. "
    "A publish with an Idempotency-Key can be repeated safely.",
    "stopping": "The server is stopping: try again.",
}


_NAME = re.compile(r"[a-z]+[A-Z_]")  # of a field or a setting, which stays in lower case
_READS = ("GET", "HEAD")

_warned: dict[str, float] = {}  # by code, when


class Refusal(Exception):
    """A request that is answered with an error; `fields` are added to the answer."""

    def __init__(
        self,
        status: int,
        code: str,
        sentence: str,
        *,
        headers: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(sentence)
        self.status = status
        self.code = code
        self.headers = headers or {}
        self.fields = fields


def refused(refusal: Refusal) -> Response:
    said = {"error": str(refusal), "code": refusal.code, **refusal.fields}
    return Response(
        msgspec.json.encode(said),
        refusal.status,
        headers={**NO_SNIFFING, **refusal.headers},
        media_type="application/json",
    )


def explain(error: Exception) -> Refusal | None:
    """The answer for an error; None: the error is not expected."""
    if isinstance(error, Refusal):
        return error
    line = next((TABLE[kind] for kind in type(error).__mro__ if kind in TABLE), None)
    if line is None:
        return None
    status, code = line
    headers = {"Retry-After": SOON} if status in (429, 503) else None
    sentence = _SENTENCES.get(code) or _sentence(str(error))
    return Refusal(status, code, sentence, headers=headers, **_fields(error))


def _sentence(message: str) -> str:
    if len(message) > LONGEST:  # it quotes a name, which may be long
        message = f"{message[:LONGEST]}…"
    if not _NAME.match(message):
        message = message[:1].upper() + message[1:]
    return message + ("" if message.endswith((".", "!", "?")) else ".")


def _fields(error: Exception) -> dict[str, Any]:
    """The details of an error."""
    match error:
        case errors.InvalidInput(position=int(position)):
            return {"position": position}
        case errors.IdempotencyConflict(event_id=event_id, position=position):
            known = {"event_id": event_id, "position": position}
            return {name: value for name, value in known.items() if value is not None}
        case errors.UniqueKeyHeld(event_id=int(event_id)):
            return {"event_id": event_id}
        case errors.WrongShard(home=int(home)):
            return {"shard": home}
    return {}


async def answer_error(request: Request, error: Exception) -> Response:
    """The answer to any exception of an operation."""
    refusal = explain(error)
    if refusal is not None and refusal.code == "outcome_unknown" and request.method in _READS:
        refusal = explain(errors.NotStored())  # a read has no outcome
    if refusal is None:
        logger.error("%s %s: %r", request.method, request.url.path, error, exc_info=error)
        refusal = Refusal(
            500, "internal_error", "The server has a bug or a broken setup: see its log."
        )
    elif refusal.status in (503, 504):
        _warn(request, error, refusal.code)
    return refused(refusal)


def _warn(request: Request, error: Exception, code: str) -> None:
    """One line for many errors: while PostgreSQL is away, every request ends like this."""
    now = time.monotonic()
    if now >= _warned.get(code, 0.0) + WARN_EVERY:
        _warned[code] = now
        said = str(error).partition("\n")[0]
        logger.warning("%s: %s %s: %s", code, request.method, request.url.path, said)
