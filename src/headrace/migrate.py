"""Brings a database to this release's schema: tables migrate, functions and views are replaced."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

import psycopg

from headrace.errors import SchemaMismatch, SchemaMissing

SCHEMA_MAJOR = 1
"""A client works with any schema of this major version; migrations add, they do not break."""

LOCK = "select pg_advisory_xact_lock(1212433735)"

_OPENING = """\
set local check_function_bodies = off;
do $$
begin
    if to_regnamespace('headrace') is null then
        create schema headrace;
    end if;
    if to_regclass('headrace.migrations') is null then
        create table headrace.migrations (
            version int primary key, name text not null, applied_at timestamptz not null);
        create table headrace.release (digest text primary key, installed_at timestamptz not null);
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

# Functions and views keep their oids ("create or replace"), so that a call in flight does not lose its
# function. What this release does not have is dropped afterwards: views by name, functions if nothing
# has written them since they were listed here, which finds old overloads too.
_LISTING = """\
select set_config('headrace.listed', coalesce(string_agg(p.oid || ':' || p.xmin, ' '), ''), true)
from pg_proc p where p.pronamespace = 'headrace'::regnamespace;
"""

_DROP = """\
do $$
declare
    old record;
begin
    for old in
        select c.relname as name from pg_class c
        where c.relnamespace = 'headrace'::regnamespace and c.relkind = 'v' and c.relname not in ({views})
        order by c.oid desc
    loop
        execute format('drop view headrace.%I', old.name);
    end loop;
    for old in
        select p.oid::regprocedure as name from pg_proc p
        where p.pronamespace = 'headrace'::regnamespace
          and p.oid || ':' || p.xmin = any (string_to_array(current_setting('headrace.listed'), ' '))
    loop
        execute format('drop routine %s', old.name);
    end loop;
end $$;
"""

_CLOSING = """\
select headrace.make_partitions(parent) from unnest('{{events,outcomes,errors}}'::text[]) parent;
select headrace.create_namespace('default');
delete from headrace.release;
insert into headrace.release values ('{digest}', clock_timestamp());
"""


def migrate(connection: psycopg.Connection) -> bool:
    """Bring the database to this release; False when it was there already.

    Safe to call from many processes at once: they take turns, and all but the first find nothing
    left to do. The user must own the schema, or be allowed to create it; nobody must be superuser.
    """
    with connection.transaction():
        if _digest_of(connection) == _digest():
            return False
        connection.execute(LOCK)
        if _digest_of(connection) == _digest():
            return False
        _refuse_a_newer_schema(connection)
        connection.execute(_body())
    return True


def script() -> str:
    """What migrate runs, as SQL to be read, kept or run by psql: idempotent, one transaction."""
    return f"begin;\n{LOCK};\n{_body()}commit;\n"


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


def _refuse_a_newer_schema(connection: psycopg.Connection) -> None:
    if connection.execute("select to_regclass('headrace.migrations') is null").fetchone() == (
        True,
    ):
        return
    row = connection.execute("select max(version) from headrace.migrations").fetchone()
    newest = max(version for version, _, _ in _migrations())
    if row and row[0] is not None and row[0] > newest:
        raise SchemaMismatch(
            f"This database was migrated by a newer release of Headrace (to migration {row[0]}, this "
            f"one has {newest}): upgrade the headrace package."
        )


def _digest_of(connection: psycopg.Connection) -> str | None:
    if connection.execute("select to_regclass('headrace.release') is null").fetchone() == (True,):
        return None
    row = connection.execute("select digest from headrace.release").fetchone()
    return row[0] if row else None


@cache
def _body() -> str:
    migrations = "".join(
        _MIGRATION.format(version=version, name=name, body=text)
        for version, name, text in _migrations()
    )
    views = ", ".join(f"'{name[2:]}'" for name, _ in _files("views"))
    replaced = [text for _, text in [*_files("views"), *_files("functions")]]
    return "\n".join(
        [
            _OPENING + migrations + _LISTING,
            *replaced,
            _DROP.format(views=views),
            *(text for _, text in _files(".")),
            _CLOSING.format(digest=_digest()),
        ]
    )


@cache
def _digest() -> str:
    files = [*_files("migrations"), *_files("views"), *_files("functions"), *_files(".")]
    return hashlib.sha256("\n".join(text for _, text in files).encode()).hexdigest()


def _migrations() -> list[tuple[int, str, str]]:
    return [(int(name[:4]), name[5:], text) for name, text in _files("migrations")]


def _files(folder: str) -> list[tuple[str, str]]:
    """The SQL files of a folder, in the order of their names: (name, text)."""
    path = resources.files("headrace") / "sql" / folder
    return sorted(
        (file.name.removesuffix(".sql"), file.read_text())
        for file in path.iterdir()
        if file.name.endswith(".sql")
    )
