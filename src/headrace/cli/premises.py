"""Where a measurement takes place: a database of its own, or a namespace of one that is there. Both are gone in the end."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from headrace.cli.failing import Interrupted, NotDone, continued
from headrace.cli.progress import Bar, stepping
from headrace.cli.source import Source, me
from headrace.client import connect
from headrace.doctor.schema import ROLES
from headrace.errors import NamespaceNotFound
from headrace.migrate import migrate
from headrace.opening import open_session, open_source

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Place:
    dsn: str
    namespace: str


@contextmanager
def own_database(where: Source) -> Iterator[Place]:
    """A new database beside the one of this address, with Headrace in it, dropped whatever happens."""
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
                with suppress(psycopg.Error):  # somebody has begun to use it meanwhile
                    admin.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))

    with _removed_by(drop, f"drop database {name} with (force)"):
        with _admin(where) as admin:
            _create(admin, name)
        _install(dsn)
        yield Place(dsn, "default")


@contextmanager
def own_namespace(where: Source) -> Iterator[Place]:
    """A new namespace of this address's database, in which Headrace must be, removed whatever happens."""
    open_source(where.dsn, None, migrate=where.embedded, namespace="default")
    name = f"bench-{secrets.token_hex(4)}"

    def remove() -> None:
        with connect(where.dsn, prepare=False, worker=me()) as queue:
            with suppress(NamespaceNotFound):  # something failed before there was one
                queue.delete_namespace(name, with_deliveries=True)
            with suppress(KeyboardInterrupt):  # the rest is anybody's tick's
                while queue.tick().more:
                    pass

    with _removed_by(remove, f"headrace namespaces remove {name} --with-deliveries"):
        yield Place(where.dsn, name)


@contextmanager
def _removed_by(remove: Callable[[], None], command: str) -> Iterator[None]:
    """The command is what is left to do for somebody who cannot wait for this."""
    try:
        yield
    finally:
        try:
            with Bar("Removing", None) as bar, stepping(bar):
                remove()
        except KeyboardInterrupt:
            raise Interrupted(
                f"Interrupted: what was measured with may be left; {command}"
            ) from None


def _create(admin: Connection, name: str) -> None:
    try:
        admin.execute(sql.SQL("create database {} template template0").format(sql.Identifier(name)))
    except errors.InsufficientPrivilege:
        user = admin.info.user
        raise NotDone(
            f"A measurement has a database of its own, and {user} may not create one: let it (alter role {user} createdb),"
            " or measure in a namespace of this database with --here."
        ) from None


def _install(dsn: str) -> None:
    try:
        connection = open_session(dsn)
    except psycopg.Error as error:  # a pooler may know some databases only
        raise continued(error, "--here measures in a namespace of this database.") from error
    with connection:
        migrate(connection)


def _admin(where: Source) -> Connection:
    return open_session(where.dsn)


def _roles(admin: Connection) -> set[str]:
    """Those of a whole server that an installation makes if they are not there."""
    found = admin.execute(
        "select rolname from pg_catalog.pg_roles"
        " where rolname operator(pg_catalog.=) any (%s::pg_catalog.name[])",
        [list(ROLES)],
    )
    return {name for (name,) in found}
