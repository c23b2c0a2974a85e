"""What a driver's error means in our words, whichever driver it is and whoever has wrapped it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from headrace.errors import HeadraceError, InvalidInput
from headrace.statements import Statement


def explain(statement: Statement[Any], error: BaseException) -> HeadraceError | None:
    """Our exception for what went wrong with a statement; None: it is not ours, and passes through."""
    cause = _first(error)
    if isinstance(cause, UnicodeEncodeError):
        return InvalidInput("an argument has a lone surrogate, which is not a character")
    sqlstate = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    if sqlstate is None:
        # Without the server's word: an argument that psycopg cannot send, or a lost connection.
        return InvalidInput(str(cause)) if isinstance(cause, psycopg.DataError) else None
    return statement.explain(sqlstate, *_said(cause))


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
    """The driver's own error: SQLAlchemy and Django raise theirs from it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _said(error: BaseException) -> tuple[str, str | None]:
    """The server's message and its detail, where psycopg keeps them or where asyncpg does."""
    diag = getattr(error, "diag", None)
    if diag is None:
        return getattr(error, "message", None) or str(error), getattr(error, "detail", None)
    return diag.message_primary or str(error), diag.message_detail
