"""The place of a measurement: a temporary database, or a temporary namespace of a given one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from headrace.cli.source import Source, me
from headrace.cli.terminal.errors import Interrupted, NotDone, continued
from headrace.cli.terminal.progress import Bar, stepping
from headrace.client import connect
from headrace.doctor.checks.schema import ROLES
from headrace.driver.connect import open_session, open_source
from headrace.errors import NamespaceNotFound
from headrace.install.migrate import migrate

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Place:
    dsn: str
    namespace: str


@contextmanager
def own_database(where: Source) -> Iterator[Place]:
    """A new database on the same server, with Headrace in it, dropped whatever happens."""
    name = f"headrace_bench_{secrets.token_hex(4)}"
    dsn = make_conninfo(where.dsn, dbname=name)
    with _admin(where) as admin:
        roles = _roles(admin)

    def drop() -> None:
        with _admin(where) as admin:
            admin.execute(
                sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name))
            )
            for role in _roles(admin) - roles:
                with suppress(psycopg.Error):  # the role is in use meanwhile
                    admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))

    with _removed_by(drop, f"drop database {name} with (force)"):
        with _admin(where) as admin:
            _create(admin, name)
        _install(dsn)
        yield Place(dsn, "default")


@contextmanager
def own_namespace(where: Source) -> Iterator[Place]:
    """A new namespace of a database that has Headrace, removed whatever happens."""
    open_source(where.dsn, None, migrate=where.embedded, namespace="default")
    name = f"bench-{secrets.token_hex(4)}"

    def remove() -> None:
        with connect(where.dsn, prepare=False, worker=me()) as queue:
            with suppress(NamespaceNotFound):  # something failed before it was created
                queue.delete_namespace(name, with_deliveries=True)
            with suppress(KeyboardInterrupt):  # the next tick of any client does the rest
                while queue.tick().more:
                    pass

    with _removed_by(remove, f"headrace namespaces remove {name} --with-deliveries"):
        yield Place(where.dsn, name)


@contextmanager
def _removed_by(remove: Callable[[], None], command: str) -> Iterator[None]:
    """Clean up at the end; `command` does the same by hand, after an interruption."""
    try:
        yield
    finally:
        try:
            with Bar("Removing", None) as bar, stepping(bar):
                remove()
        except KeyboardInterrupt:
            raise Interrupted(f"Interrupted: remove what may be left with: {command}") from None


def _create(admin: Connection, name: str) -> None:
    try:
        admin.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
    except errors.InsufficientPrivilege:
        user = admin.info.user
        raise NotDone(
            f"The benchmark creates a temporary database, and {user} may not: grant it (alter role {user} createdb),"
            " or use a namespace of this database with --here."
        ) from None


def _install(dsn: str) -> None:
    try:
        connection = open_session(dsn)
    except psycopg.Error as error:  # a pooler may serve some databases only
        raise continued(error, "--here uses a namespace of this database.") from error
    with connection:
        migrate(connection)


def _admin(where: Source) -> Connection:
    return open_session(where.dsn)


def _roles(admin: Connection) -> set[str]:
    """The server-wide roles that an installation creates if they are missing."""
    found = admin.execute(
        "select rolname from pg_catalog.pg_roles"
        " where rolname operator(pg_catalog.=) any (%s::pg_catalog.name[])",
        [list(ROLES)],
    )
    return {name for (name,) in found}
