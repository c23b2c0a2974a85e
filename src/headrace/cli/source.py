"""Where a command's PostgreSQL comes from: an address that was given, or the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from headrace.opening import given_dsn, usable


@dataclass(frozen=True)
class Source:
    """An open database: its address, and a name for people in which no password is."""

    dsn: str
    name: str
    embedded: bool


@contextmanager
def database(dsn: str | None, data: Path | None) -> Iterator[Source]:
    """The database that `connect()` would use, started if it is the embedded one."""
    given = dsn or (None if data else given_dsn())
    if given is not None:
        address = usable(given)
        yield Source(address, _name(address), embedded=False)
        return
    from headrace.embedded import EmbeddedPostgres

    with EmbeddedPostgres(data) as postgres:
        name = f"PostgreSQL {postgres.version} in {postgres.data}"
        yield Source(postgres.dsn, name, embedded=True)


def _name(address: str) -> str:
    parts = conninfo_to_dict(address)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"PostgreSQL at {host}, database {parts.get('dbname') or parts.get('user') or 'default'}"
