"""The database that is looked at: carefully, so that a look costs it little and can be made through a pooler."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from headrace.doctor.findings import Limits
from headrace.optional import PARTS
from headrace.ownership import LOWER_OWNER

# A check that takes longer is given up, and nobody's function is called instead of PostgreSQL's. Of the transaction, not of
# the session, which may be somebody else's next.
_CAREFULLY = (
    "set local statement_timeout = '5s'; set local lock_timeout = '500ms'; "
    "set local search_path = pg_catalog, pg_temp"
)


# A table, view or function of ours, which a string that names one is not.
_STRINGS = re.compile("'[^']*'")
_OF_OURS = re.compile(rf"\b({'|'.join(['headrace', *PARTS.values()])})\.")


class Distrusted(Exception):
    """What a query would call belongs to a lower role than ours, who may have put anything into it."""


@dataclass
class Patient:
    """A database, as the role that is connected sees it."""

    connection: psycopg.Connection[Any]
    dsn: str
    limits: Limits = field(default_factory=Limits)
    clock: Callable[[], float] = time.time
    distrusts: str | None = None
    """Whose objects are in the schema, if that is a lower role than ours."""

    def __post_init__(self) -> None:
        found = self.rows(LOWER_OWNER)
        self.distrusts = found[0].owner if found else None

    def rows(self, query: str, **parameters: Any) -> list[Any]:
        """The rows of a query, columns by name. Raises Distrusted for one that a lower role may have planted something for."""
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


def span(length: timedelta) -> str:
    """A length of time for people, in its largest unit that is not a fraction."""
    seconds = length.total_seconds()
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}s"
    return f"{seconds:.0f} seconds" if seconds >= 2 else f"{seconds:.1f} seconds"
