"""What a driver's error means in our words, whichever driver it is and whoever has wrapped it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.errors import Diagnostic
from psycopg_pool import PoolTimeout

from headrace import errors
from headrace.errors import HeadraceError, InvalidInput
from headrace.statements import Statement

UNREPLICATED = "PostgreSQL stopped waiting for its synchronous standby: the call took effect, and a failover may undo it"

# The session ends, or has ended: PostgreSQL is told to stop, crashes or starts; or the connection is gone.
_GONE = ("57P0", "08")


class NotStored(errors.NotStored, psycopg.OperationalError):
    """Ours, for those who know it by this name; psycopg's, for those who expect what a lost connection raised always."""


class NoConnection(NotStored, PoolTimeout):
    """A pool had none to give in time."""


class OutcomeUnknown(errors.OutcomeUnknown, psycopg.OperationalError):
    """As NotStored is: ours and psycopg's."""


def unanswered(said: str, was_sent: bool) -> NotStored | OutcomeUnknown:
    """What it means that there is no answer; `said`: why."""
    if was_sent:
        return OutcomeUnknown(f"{said}: the call took effect, or it did not")
    return NotStored(f"{said}: nothing was stored")


def is_gone(error: psycopg.OperationalError) -> bool:
    """Whether an error that the server tells of is the session's end."""
    return (error.sqlstate or "").startswith(_GONE)


def is_unreplicated(notice: Diagnostic) -> bool:
    """Whether PostgreSQL says, by a mere warning, that a commit is not on the synchronous standby. By the name of its
    function: the words are in the language of the server."""
    return notice.source_function == "SyncRepWaitForLSN"


def explain(statement: Statement[Any], error: BaseException) -> HeadraceError | None:
    """Our exception for what went wrong with a statement; None: it is not ours, and passes through."""
    first = _first(error)
    if isinstance(first, UnicodeEncodeError):
        return InvalidInput("an argument has a lone surrogate, which is not a character")
    sqlstate = _sqlstate(first)
    if sqlstate is None:
        # Without the server's word: an argument that psycopg cannot send, or a lost connection.
        return InvalidInput(str(first)) if isinstance(first, psycopg.DataError) else None
    return statement.explain(sqlstate, *_said(first))


@contextmanager
def explained(statement: Statement[Any]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        ours = explain(statement, error)
        if ours is None:
            raise
        raise ours from error


def _first(error: BaseException) -> BaseException:
    """The driver's own error, from which SQLAlchemy and Django raise theirs."""
    first, cause = error, error.__cause__
    while cause is not None:
        if isinstance(cause, psycopg.Error | UnicodeEncodeError) or _sqlstate(cause):
            first = cause
        cause = cause.__cause__
    return first


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)


def _said(error: BaseException) -> tuple[str, str | None]:
    """The server's message and its detail, where psycopg keeps them or where asyncpg does."""
    diag = getattr(error, "diag", None)
    if diag is None:
        return getattr(error, "message", None) or str(error), getattr(error, "detail", None)
    return diag.message_primary or str(error), diag.message_detail
