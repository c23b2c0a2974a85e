"""Translates a driver's error into one of ours, whichever driver raised it and whichever library
wrapped it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.errors import Diagnostic
from psycopg_pool import PoolTimeout

from headrace import errors
from headrace.engine.statement import Statement
from headrace.errors import HeadraceError, InvalidInput

UNREPLICATED = (
    "PostgreSQL stopped waiting for its synchronous standby: the call took effect, and a "
    "failover may undo it"
)

# The session ends, or has ended: PostgreSQL is stopping, crashing or starting; or the connection is
# lost.
_GONE = ("57P0", "08")


class NotStored(errors.NotStored, psycopg.OperationalError):
    """Both ours, and psycopg's for programs that expect the error that a lost connection always
    raised."""


class NoConnection(NotStored, PoolTimeout):
    """A pool had none to give in time."""


class OutcomeUnknown(errors.OutcomeUnknown, psycopg.OperationalError):
    """As NotStored is: ours and psycopg's."""


def unanswered(said: str, was_sent: bool) -> NotStored | OutcomeUnknown:
    """The error for a call without a reply; `said`: why there is none."""
    if was_sent:
        return OutcomeUnknown(f"{said}: the call took effect, or it did not")
    return NotStored(f"{said}: nothing was stored")


def is_gone(error: psycopg.OperationalError) -> bool:
    """Whether an error that the server reports means the end of the session."""
    return (error.sqlstate or "").startswith(_GONE)


def is_unreplicated(notice: Diagnostic) -> bool:
    """Whether PostgreSQL reports, by a mere warning, that a commit is not on the synchronous
    standby. By the name of its function: the message is in the language of the server."""
    return notice.source_function == "SyncRepWaitForLSN"


def explain(statement: Statement[Any], error: BaseException) -> HeadraceError | None:
    """Our exception for a statement's error; None: it is not one of ours, and passes through."""
    first = _first(error)
    if isinstance(first, UnicodeEncodeError):
        return InvalidInput("an argument contains a lone surrogate, which is not a character")
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
