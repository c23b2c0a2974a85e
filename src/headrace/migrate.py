"""Brings a database to this release's schema: tables migrate, functions and views are replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache

import psycopg

from headrace import optional, ownership
from headrace.errors import (
    InvalidInput,
    NotInstallable,
    SchemaError,
    SchemaMismatch,
    SchemaMissing,
)
from headrace.replacing import clearing, declared, digest, files

SCHEMA_MAJOR = 1
"""A client works with any schema of this major version; migrations add, they do not break."""

RELEASE = "headrace"
"""What the schema itself is called beside the optional parts."""

LOCK = "select pg_catalog.pg_advisory_xact_lock(1212433735)"

_OPENING = """\
set local check_function_bodies = off;
do $$
begin
    if to_regnamespace('headrace') is null then
        create schema headrace;
    end if;
end $$;
{owners}
do $$
begin
    if to_regclass('headrace.migrations') is null then
        create table headrace.migrations (
            version int primary key, name text not null, applied_at timestamptz not null);
        create table headrace.release (
            digest text primary key, declarations jsonb not null, installed_at timestamptz not null);
    end if;
    if exists (select from headrace.migrations where version > {newest}) then
        raise exception using errcode = 'QU040', message =
            'This database was migrated by a newer release of Headrace: upgrade the headrace package.';
    end if;
end $$;
"""

_MIGRATION = """\
do $migration$
begin
if not exists (select from headrace.migrations where version = {version}) then
{body}
insert into headrace.migrations values ({version}, '{name}', clock_timestamp());
end if;
end $migration$;
"""

_CLOSING = """\
select headrace.make_partitions(parent) from unnest('{{events,outcomes,errors}}'::text[]) parent;
select headrace.create_namespace('default');
delete from headrace.release;
insert into headrace.release values ('{digest}', $json${declarations}$json$, clock_timestamp());
"""


def migrate(
    connection: psycopg.Connection,
    *,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    progress: Callable[[int, int], object] | None = None,
) -> bool:
    """Bring the database to this release; False when it was there already.

    Safe to call from many processes at once: they take turns, and all but the first find nothing
    left to do. The user must own the schema, or be allowed to create it; nobody must be superuser.

    add, remove: optional parts to have, or not to have, from now on, see headrace.optional. What was
    added once is brought to this release by every later migrate. progress is called with how many of how
    many parts are done; all of them are committed together, after the last.

    NotInstallable: an object of another role stands in the schema, see headrace.ownership.
    """
    _check_parts(add, remove)
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(f"Headrace needs a database with encoding UTF8; this one has {encoding}.")
    alone = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    try:
        with connection.transaction(), _own_search_path(connection, alone):
            connection.execute(ownership.CHECK)
            if not _missing(connection, add, remove):
                return False
            connection.execute(LOCK)
            missing = _missing(connection, add, remove)
            for done, part in enumerate(missing, 1):
                connection.execute(part)
                if progress:
                    progress(done, len(missing))
            return bool(missing)
    except psycopg.Error as error:
        for refusal in (SchemaMismatch, NotInstallable):
            if error.sqlstate == refusal.sqlstate:
                raise refusal(error.diag.message_primary) from None
        raise


@contextmanager
def _own_search_path(connection: psycopg.Connection, alone: bool) -> Iterator[None]:
    """In the transaction every name is PostgreSQL's or ours. A caller's transaction goes on with the caller's path."""
    if alone:  # a higher level would still see the world from before it had to wait
        connection.execute("set transaction isolation level read committed")
    path = connection.execute("select pg_catalog.current_setting('search_path')").fetchone()
    connection.execute(ownership.SEARCH_PATH)
    yield
    if not alone:
        connection.execute("select pg_catalog.set_config('search_path', %s, true)", path)


def script(*, add: Collection[str] = (), remove: Collection[str] = ()) -> str:
    """What migrate runs, as SQL to be read, kept or run by psql: idempotent, one transaction."""
    _check_parts(add, remove)
    wanted = dict.fromkeys(add, True) | dict.fromkeys(remove, False)
    parts = "\n".join(optional.script(part, wanted.get(part)) for part in optional.PARTS)
    opening = f"begin;\n{ownership.SEARCH_PATH};\n{ownership.CHECK}{LOCK};\n"
    return f"{opening}{_body()}\n{parts}commit;\n"


def newest() -> int:
    """The number of this release's last migration."""
    return _migrations()[-1][0]


def release() -> str:
    """What tells this release's schema from any other's: a digest of all its files."""
    return _digest()


def check_version(row: tuple[int, int] | None) -> None:
    """Refuse to work with a schema that this release does not know."""
    if row is None:
        raise SchemaMissing(
            "This database has no Headrace schema; `headrace migrate`, "
            "or connect(migrate=True), creates it."
        )
    if row[0] != SCHEMA_MAJOR:
        raise SchemaMismatch(
            f"This database has Headrace schema version {row[0]}.{row[1]} and this release works with "
            f"{SCHEMA_MAJOR}.x: "
            + (
                "upgrade the headrace package."
                if row[0] > SCHEMA_MAJOR
                else "run `headrace migrate`."
            )
        )


def _check_parts(add: Collection[str], remove: Collection[str]) -> None:
    for name in [*add, *remove]:
        if name not in optional.PARTS:
            raise InvalidInput(
                f"there is no optional part {name!r}: there are {', '.join(optional.PARTS)}"
            )
        if name in add and name in remove:
            raise InvalidInput(f"{name} is to be added and to be removed")


def _missing(
    connection: psycopg.Connection, add: Collection[str], remove: Collection[str]
) -> list[str]:
    """The SQL that has still to be run."""
    standing = _standing(connection)
    release = [] if standing.get(RELEASE) == _digest() else _steps()
    removed = [
        optional.removal(part) for part in optional.PARTS if part in remove and part in standing
    ]
    installed = [
        optional.installation(part)
        for part in optional.PARTS
        if part not in remove
        and (part in add or part in standing)
        and standing.get(part) != optional.digest_of(part)
    ]
    return release + removed + installed


def _standing(connection: psycopg.Connection) -> dict[str, str]:
    """What is installed, with the digest of its files: the release, and optional parts by their names."""
    # to_regclass would answer from a cache that does not know yet what another has just made.
    # A table of ours in a schema of ours: nobody else can have put it there since the owners were checked.
    known = connection.execute(
        "select c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname = 'headrace' and c.relname in ('release', 'optional') and c.relkind = 'r'"
        " and n.nspowner = c.relowner"
    ).fetchall()
    standing: dict[str, str] = {}
    if ("release",) in known:
        standing |= connection.execute("select %s, digest from headrace.release", [RELEASE])
    if ("optional",) in known:
        standing |= connection.execute("select name, digest from headrace.optional")
    return standing


def _body() -> str:
    return "\n".join(_steps())


def opening(newest: int) -> str:
    """SQL that makes the schema. Its owners are checked again: somebody else may have made it just now."""
    return _OPENING.format(owners=ownership.CHECK, newest=newest)


@cache
def _steps() -> list[str]:
    """What brings a database to this release, part by part."""
    migrations = _migrations()
    texts = _replaced()
    return [
        opening(migrations[-1][0]),
        *(_MIGRATION.format(version=v, name=name, body=text) for v, name, text in migrations),
        clearing("headrace", texts, "select r.declarations from headrace.release r"),
        *texts,
        *(text for _, text in files(".")),
        _CLOSING.format(digest=_digest(), declarations=declared(texts)),
    ]


@cache
def _digest() -> str:
    rest = [text for folder in ("migrations", ".") for _, text in files(folder)]
    return digest([*_replaced(), *rest])


def _replaced() -> list[str]:
    return [text for folder in ("views", "functions") for _, text in files(folder)]


def _migrations() -> list[tuple[int, str, str]]:
    return [(int(name[:4]), name[5:], text) for name, text in files("migrations")]
