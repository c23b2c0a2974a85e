"""Brings a database to this release's schema: tables migrate, functions and views are replaced."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache

import psycopg

from headrace.errors import (
    Busy,
    InvalidInput,
    NotInstallable,
    SchemaError,
    SchemaMismatch,
    SchemaMissing,
    SequenceBehind,
)
from headrace.install import ownership, parts
from headrace.install.replace import clearing, declared, digest, files, files_below

SCHEMA_MAJOR = 1
"""A client works with any schema of this major version; migrations add, they do not break."""

_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)

RELEASE = "headrace"
"""The schema's own name in the list of what is installed; the others are the optional parts."""

PATIENCE = 60.0
"""Seconds that a migration waits for another one, at most."""

# Migrations run one at a time: each locks a table that only its owner may lock. Two migrations that
# create that table at once meet at PostgreSQL's own catalogues: the second waits there for the
# first, and then finds the table. Not an advisory lock: any role could take it.
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
  -- a table that is locked and not visible yet is being created
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
    if exists (select from headrace.migrations where version = 1 and name <> '{schema}') then
        raise exception using errcode = 'QU040', message =
            'This database has a development schema of Headrace, which nothing upgrades. '
            'Drop schema headrace and migrate again: its events go with it.';
    end if;
    if exists (select from headrace.migrations where version > {newest}) then
        raise exception using errcode = 'QU040', message =
            'This database was migrated by a newer release of Headrace: upgrade the headrace package.';
    end if;
end $$;
"""

# Version 1 is the folder schema, installed as one; later versions are the files of the folder
# migrations.
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
select headrace._make_partitions(parent) from unnest('{{events,outcomes,errors}}'::text[]) parent;
select headrace.create_namespace('default');
delete from headrace.release;
insert into headrace.release values ('{digest}', $json${declarations}$json$, clock_timestamp());
"""


def migrate(
    connection: psycopg.Connection,
    *,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    stride: int | None = None,
    shard: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> bool:
    """Bring the database to this release; False when it was there already.

    Safe to call from many processes at once: they take turns, and all but the first find nothing
    left to do. A call that waits for its turn longer than a minute fails, and names the session
    that blocks it. The user must own the schema, or be allowed to create it, and need not be a
    superuser.

    add, remove: optional parts to install or to remove, see headrace.install.parts. Every later
    migrate brings installed parts to its release.

    stride, shard: make it that shard of at most `stride` databases, a power of two up to 1024; the
    default of a new database is shard 0 of 1. A shard never changes, but a database of stride 1 may
    become shard 0 of more. None: it stays what it is.

    progress is called with the number of steps that
    are done and of all steps; they are committed together, after the last.

    SchemaMismatch: the database is another shard. SequenceBehind: its sequence of ids is not that of
    its shard. NotInstallable: the schema holds an object of another role, see headrace.install.ownership.
    """
    _check_parts(add, remove)
    _check_shard(stride, shard)
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(f"Headrace needs a database with encoding UTF8; this one has {encoding}.")
    alone = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    try:
        with connection.transaction(), _own_search_path(connection, alone):
            connection.execute(ownership.CHECK)
            if not _missing(connection, add, remove, stride, shard):
                return False
            _take_turn(connection)
            missing = _missing(connection, add, remove, stride, shard)
            for done, part in enumerate(missing, 1):
                connection.execute(part)
                if progress:
                    progress(done, len(missing))
            return bool(missing)
    except psycopg.Error as error:
        for refusal in (SchemaMismatch, SequenceBehind, NotInstallable, Busy):
            if error.sqlstate == refusal.sqlstate:
                raise refusal(error.diag.message_primary) from None
        raise


@contextmanager
def _own_search_path(connection: psycopg.Connection, alone: bool) -> Iterator[None]:
    """In the transaction every name is PostgreSQL's or ours. A caller's transaction goes on with
    the caller's path."""
    if alone:  # a higher level would still use its snapshot from before it had to wait
        connection.execute("set transaction isolation level read committed")
    path = connection.execute("select pg_catalog.current_setting('search_path')").fetchone()
    connection.execute(ownership.SEARCH_PATH)
    yield
    if not alone:
        connection.execute("select pg_catalog.set_config('search_path', %s, true)", path)


def script(
    *,
    add: Collection[str] = (),
    remove: Collection[str] = (),
    stride: int | None = None,
    shard: int | None = None,
) -> str:
    """The SQL that migrate runs, to be read, kept or run by psql: idempotent, one transaction."""
    _check_parts(add, remove)
    _check_shard(stride, shard)
    wanted = dict.fromkeys(add, True) | dict.fromkeys(remove, False)
    asked = "\n".join(parts.script(part, wanted.get(part)) for part in parts.PARTS)
    bound = _BOUND.format(patience=1000 * PATIENCE)
    turn = f"{bound};\n{BEGINNING}{LOCK};\nset local lock_timeout to default;\n"
    opening = f"begin;\n{ownership.SEARCH_PATH};\n{ownership.CHECK}{turn}"
    return f"{opening}{_body(stride, shard)}\n{asked}commit;\n"


def newest() -> int:
    """The number of this release's last migration."""
    return _migrations()[-1][0]


@cache
def schema_name() -> str:
    """The name of version 1: it tells the tables of this release from those of other development
    versions.

    Comments and white space do not count: rewording a comment does not change the name.
    """
    text = "\n".join(text for _, text in files("schema"))
    return "schema " + digest(["".join(_COMMENT.sub("", text).split())])[:12]


def release() -> str:
    """A digest of all files of this release's schema: it differs from every other release's."""
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
            f"This database has Headrace schema version {row[0]}.{row[1]} and this release works "
            f"with {SCHEMA_MAJOR}.x: "
            + (
                "upgrade the headrace package."
                if row[0] > SCHEMA_MAJOR
                else "run `headrace migrate`."
            )
        )


def _check_parts(add: Collection[str], remove: Collection[str]) -> None:
    for name in [*add, *remove]:
        if name not in parts.PARTS:
            raise InvalidInput(
                f"there is no optional part {name!r}: choose from {', '.join(parts.PARTS)}"
            )
        if name in add and name in remove:
            raise InvalidInput(f"{name} is both in add and in remove: name it in one of them")


def _check_shard(stride: int | None, shard: int | None) -> None:
    if stride is None and shard is not None:
        raise InvalidInput("a shard is one of at most `stride` databases: name the stride, too")
    if stride is not None and (stride not in range(1, 1025) or stride.bit_count() != 1):
        raise InvalidInput(f"the stride {stride} is not a power of two from 1 to 1024")
    if stride is not None and shard is not None and shard not in range(stride):
        raise InvalidInput(
            f"there is no shard {shard} of {stride}: choose one from 0 to {stride - 1}"
        )


def _take_turn(connection: psycopg.Connection) -> None:
    """Wait until no other session migrates, then keep others from it until the transaction ends."""
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
        f"{who or 'Another session'} migrates this database, or has its table headrace.migrations "
        f"locked, for more than {PATIENCE:.0f} seconds. Wait until it ends, or end it by "
        f"`select pg_terminate_backend({holders[0][0] if holders else 'PID'})`, and migrate again."
    )


def _missing(
    connection: psycopg.Connection,
    add: Collection[str],
    remove: Collection[str],
    stride: int | None,
    shard: int | None,
) -> list[str]:
    """The SQL that has still to be run."""
    standing = _standing(connection)
    release: list[str] = []
    if standing.get(RELEASE) != _digest():
        release = [*_steps(), _becoming(stride, shard)]
    elif not _is_shard(connection, stride, shard):
        release = [_becoming(stride, shard)]
    removed = [parts.removal(part) for part in parts.PARTS if part in remove and part in standing]
    installed = [
        parts.installation(part)
        for part in parts.PARTS
        if part not in remove
        and (part in add or part in standing)
        and standing.get(part) != parts.digest_of(part)
    ]
    return release + removed + installed


def _standing(connection: psycopg.Connection) -> dict[str, str]:
    """The digests of what is installed: of the release, and of optional parts by their names."""
    # to_regclass would answer from a cache that does not have yet what another session has just
    # created. The table and its schema have one owner, and the owners have been checked: no other
    # role can have created the table since.
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


def _is_shard(connection: psycopg.Connection, stride: int | None, shard: int | None) -> bool:
    """Whether the database, which has this release, is that shard, and sound."""
    return connection.execute(
        "select p.problem is null and coalesce(%s = s.stride, true) and coalesce(%s = s.number, true)"
        " from headrace.shard s, headrace._shard_problem() p",
        [stride, shard],
    ).fetchall() == [(True,)]


def _becoming(stride: int | None, shard: int | None) -> str:
    """SQL that makes a database this shard, or says why it cannot be."""
    one, other = ("null" if n is None else int(n) for n in (stride, shard))
    return f"select headrace._become_shard({one}, {other});\n"


def _body(stride: int | None, shard: int | None) -> str:
    return "\n".join([*_steps(), _becoming(stride, shard)])


def opening(newest: int) -> str:
    """SQL that begins the installation. It checks the owners again: another role may have created
    the schema just now."""
    return _OPENING.format(owners=ownership.CHECK, newest=newest, schema=schema_name())


@cache
def _steps() -> list[str]:
    """The SQL that brings a database to this release, step by step."""
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
    rest = [text for folder in ("schema", "migrations", ".") for _, text in files(folder)]
    return digest([*_replaced(), *rest])


def _replaced() -> list[str]:
    return [text for folder in ("functions", "views") for _, text in files_below(folder)]


def _migrations() -> list[tuple[int, str, str]]:
    first = "\n".join(text for _, text in files("schema"))
    later = [(int(name[:4]), name[5:], text) for name, text in files("migrations")]
    return [(1, schema_name(), first), *later]
