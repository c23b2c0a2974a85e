"""The database that is checked: carefully, so that a check costs it little and works through a
pooler."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from headrace.doctor.findings import Limits
from headrace.install.ownership import LOWER_OWNER
from headrace.install.parts import PARTS
from headrace.model.duration import duration_text

# A check that takes longer is stopped, and only PostgreSQL's own functions are called. These are
# settings of the transaction, not of the session, which a pooler may lend to another client next.
_CAREFULLY = (
    "set local statement_timeout = '5s'; set local lock_timeout = '500ms'; "
    "set local search_path = pg_catalog, pg_temp"
)


# A table, view or function of ours, which a string that names one is not.
_STRINGS = re.compile("'[^']*'")
_OF_OURS = re.compile(rf"\b({'|'.join(['headrace', *PARTS.values()])})\.")


class Distrusted(Exception):
    """A query would call objects of a lower role than ours, which may have put anything into
    them."""


@dataclass
class Database:
    """A database, as the role that is connected sees it."""

    connection: psycopg.Connection[Any]
    dsn: str
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.time
    distrusts: str | None = None
    """The role that owns objects in the schema, if that is a lower role than ours."""

    def __post_init__(self) -> None:
        found = self.rows(LOWER_OWNER)
        self.distrusts = found[0].owner if found else None

    def rows(self, query: str, **parameters: Any) -> list[Any]:
        """The rows of a query, columns by name. Raises Distrusted for a query that would run
        objects of a lower role."""
        if self.distrusts is not None and _OF_OURS.search(_STRINGS.sub("", query)):
            raise Distrusted(self.distrusts)
        with (
            self.connection.transaction(),
            self.connection.cursor(row_factory=namedtuple_row) as cursor,
        ):
            cursor.execute(_CAREFULLY)
            return cursor.execute(query, parameters or None).fetchall()

    def row(self, query: str, **parameters: Any) -> Any:
        [row] = self.rows(query, **parameters)
        return row

    def identifier(self, name: str) -> str:
        """A name as SQL writes it, in quotes if it needs them."""
        return str(self.row("select quote_ident(%(name)s) as name", name=name).name)


span = duration_text  # as the checks call it
