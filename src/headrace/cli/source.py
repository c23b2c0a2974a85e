"""Where a command's PostgreSQL comes from: an address that was given, or the embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # --help and completion do without all of it
    import psycopg

    from headrace.client import EventQueue


@dataclass(frozen=True)
class Source:
    """An open database: its address, and a name for people in which no password is."""

    dsn: str
    name: str
    embedded: bool
    data: Path | None = None
    """The folder of an embedded one."""


@contextmanager
def database(dsn: str | None, data: Path | None) -> Iterator[Source]:
    """The database that `connect()` would use, started if it is the embedded one."""
    from headrace.opening import given_dsn, usable

    given = dsn or (None if data else given_dsn())
    if given is not None:
        address = usable(given)
        yield Source(address, _name(address), embedded=False)
        return
    from headrace.embedded import EmbeddedPostgres

    with EmbeddedPostgres(data, supervised=True) as postgres:
        name = f"PostgreSQL {postgres.version} in {postgres.data}"
        yield Source(postgres.dsn, name, embedded=True, data=postgres.data)


@contextmanager
def prepared(dsn: str | None, data: Path | None) -> Iterator[Source]:
    """The database, with the schema in it: an embedded one gets it, one of yours must have it."""
    from headrace.opening import open_source

    with database(dsn, data) as where:
        open_source(where.dsn, None, migrate=where.embedded, namespace="default")
        yield where


@contextmanager
def opened(
    dsn: str | None, data: Path | None, namespace: str = "default", queue: str = "main"
) -> Iterator[EventQueue]:
    """A queue of the database, over one connection. A namespace that is not there is not created: a name that was
    mistyped must not become one."""
    with prepared(dsn, data) as where, connected(where) as connection:
        yield queue_over(connection, namespace, queue)


def connected(where: Source) -> psycopg.Connection[Any]:
    """A connection for a command. It prepares no statements, so that a transaction pooler may be in between."""
    from headrace.opening import HEAR_WARNINGS, READ_COMMITTED, open_session

    connection = open_session(where.dsn)
    level = connection.execute(
        "select pg_catalog.current_setting('transaction_isolation')"
    ).fetchone()
    if level != ("read committed",):
        connection.execute(READ_COMMITTED)
    connection.command(HEAR_WARNINGS)
    return connection


def queue_over(connection: psycopg.Connection[Any], namespace: str, queue: str) -> EventQueue:
    """A queue over a connection, for as long as that is open."""
    from headrace.client import EventQueue

    return EventQueue(connection, namespace=namespace, queue=queue, worker=me(), prepare=False)


def me() -> str:
    """Who does it, for the log of administration."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"


def _name(address: str) -> str:
    from psycopg.conninfo import conninfo_to_dict

    parts = conninfo_to_dict(address)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"PostgreSQL at {host}, database {parts.get('dbname') or parts.get('user') or 'default'}"
