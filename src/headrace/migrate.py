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

PATIENCE = 60.0
"""Seconds that a migration waits for another one, at most."""

# One migration at a time: by the lock of a table that only its owner may lock. Two that make that table at once meet at
# PostgreSQL's own catalogues: the second waits for the first there, and then finds it made. An advisory lock would be anybody's.
BEGINNING = """\
do $$
begin
    for attempt in 1..3 loop
        begin
            if not exists (select from pg_catalog.pg_namespace where nspname = 'headrace') then
                create schema headrace;
            end if;
            if not exists (select from pg_catalog.pg_class where relname = 'migrations' and relnamespace = (
                               select oid from pg_catalog.pg_namespace where nspname = 'headrace')) then
                create table headrace.migrations (
                    version int primary key, name text not null, applied_at timestamptz not null);
                create table headrace.release (
                    digest text primary key, declarations jsonb not null, installed_at timestamptz not null);
            end if;
            exit;
        exception when unique_violation or duplicate_schema or duplicate_table or duplicate_object then
            null;
        end;
    end loop;
end $$;
"""
LOCK = "lock table headrace.migrations in share row exclusive mode"

_BOUND = "set local lock_timeout = '{patience:.0f}ms'"

_HOLDERS = """\
select distinct l.pid, a.usename, a.application_name
from pg_catalog.pg_locks l left join pg_catalog.pg_stat_activity a on a.pid = l.pid
where l.locktype = 'relation' and l.granted and l.pid <> pg_catalog.pg_backend_pid()
  and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
  -- a table that nobody else sees yet is being made
  and case when pg_catalog.to_regclass('headrace.migrations') is null
           then l.mode = 'AccessExclusiveLock' and not exists (select from pg_catalog.pg_class c where c.oid = l.relation)
           else l.relation = pg_catalog.to_regclass('headrace.migrations') and l.mode not in ('AccessShareLock', 'RowShareLock') end
order by l.pid
"""

_OPENING = """\
set local check_function_bodies = off;
{owners}
do $$
begin
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
    left to do; one that waits for its turn longer than a minute says who is in the way. The user must own the schema, or be allowed to create it; nobody must be superuser.

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
            _take_turn(connection)
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
    bound = _BOUND.format(patience=1000 * PATIENCE)
    turn = f"{bound};\n{BEGINNING}{LOCK};\nset local lock_timeout to default;\n"
    opening = f"begin;\n{ownership.SEARCH_PATH};\n{ownership.CHECK}{turn}"
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


def _take_turn(connection: psycopg.Connection) -> None:
    """Keep others from migrating until the transaction ends, once nobody else is at it."""
    [(before,)] = connection.execute("select pg_catalog.current_setting('lock_timeout')").fetchall()
    try:
        with connection.transaction():
            connection.execute(_BOUND.format(patience=1000 * PATIENCE))
            connection.execute(BEGINNING)
            connection.execute(LOCK)
    except psycopg.errors.LockNotAvailable:
        raise SchemaError(_in_the_way(connection.execute(_HOLDERS).fetchall())) from None
    connection.execute("select pg_catalog.set_config('lock_timeout', %s, true)", [before])


def _in_the_way(holders: list[tuple[int, str | None, str | None]]) -> str:
    who = " and ".join(
        f"process {pid} (role {role}, application {application or 'without a name'})"
        for pid, role, application in holders
    )
    return (
        f"{who or 'Another session'} migrates this database, or has its table headrace.migrations locked, "
        f"for more than {PATIENCE:.0f} seconds. Let it end, or end it by "
        f"`select pg_terminate_backend({holders[0][0] if holders else 'PID'})`, and migrate again."
    )


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
