"""Brings a database to this release's schema: tables migrate, functions and views are replaced."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib import resources

import psycopg

from headrace.errors import SchemaError, SchemaMismatch, SchemaMissing

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

# Functions and views are replaced in place, so that a call in flight does not lose its function. Only
# what cannot be is dropped before: what is declared otherwise than in the release that is installed,
# and what this release does not have. Views stand on each other: they go together, or not at all.
_DROP = """\
do $$
declare
    wanted constant jsonb := $json${declarations}$json$;
    had constant jsonb := coalesce((select r.declarations from headrace.release r), '{{}}');
    views constant boolean := exists (
        select from pg_class c where c.relnamespace = 'headrace'::regnamespace and c.relkind = 'v'
        and (not wanted ? ('view ' || c.relname)
             or wanted -> ('view ' || c.relname) is distinct from had -> ('view ' || c.relname)));
    old record;
    dropped boolean := true;
    refusal text;
begin
    while dropped loop
        dropped := false;
        refusal := null;
        for old in
            select format('drop view headrace.%I', c.relname) as command
            from pg_class c where c.relnamespace = 'headrace'::regnamespace and c.relkind = 'v' and views
            union all
            select format('drop routine %s', p.oid::regprocedure)
            from pg_proc p where p.pronamespace = 'headrace'::regnamespace
            and (not wanted ? ('function ' || p.proname)
                 or wanted -> ('function ' || p.proname) is distinct from had -> ('function ' || p.proname)
                 or (select count(*) from pg_proc o where o.pronamespace = p.pronamespace and o.proname = p.proname) > 1)
        loop
            begin
                execute old.command;
                dropped := true;
            exception
                when dependent_objects_still_exist then
                    get stacked diagnostics refusal = pg_exception_detail;  -- perhaps in the next round
                when undefined_function or undefined_table then
                    null;
            end;
        end loop;
    end loop;
    if refusal is not null then
        raise exception using errcode = '2BP01',
            message = 'something of yours stands on what this release replaces; drop it, migrate, and create it again',
            detail = refusal;
    end if;
end $$;
"""

_CLOSING = """\
select headrace.make_partitions(parent) from unnest('{{events,outcomes,errors}}'::text[]) parent;
select headrace.create_namespace('default');
delete from headrace.release;
insert into headrace.release values ('{digest}', $json${declarations}$json$, clock_timestamp());
"""


def migrate(connection: psycopg.Connection) -> bool:
    """Bring the database to this release; False when it was there already.

    Safe to call from many processes at once: they take turns, and all but the first find nothing
    left to do. The user must own the schema, or be allowed to create it; nobody must be superuser.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise SchemaError(f"Headrace needs a database with encoding UTF8; this one has {encoding}.")
    alone = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    try:
        with connection.transaction():
            if alone:  # a higher level would still see the world from before it had to wait
                connection.execute("set transaction isolation level read committed")
            if _digest_of(connection) == _digest():
                return False
            connection.execute(LOCK)
            if _digest_of(connection) == _digest():
                return False
            connection.execute(_body())
            return True
    except psycopg.Error as error:
        if error.sqlstate == SchemaMismatch.sqlstate:
            raise SchemaMismatch(error.diag.message_primary) from None
        raise


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


def _digest_of(connection: psycopg.Connection) -> str | None:
    # to_regclass would answer from a cache that does not know yet what another has just made.
    known = connection.execute(
        "select from pg_catalog.pg_class where relname = 'release'"
        " and relnamespace = (select oid from pg_catalog.pg_namespace where nspname = 'headrace')"
    )
    if known.rowcount == 0:
        return None
    row = connection.execute("select digest from headrace.release").fetchone()
    return row[0] if row else None


@cache
def _body() -> str:
    migrations = _migrations()
    declarations = json.dumps(_declarations(), indent=1)
    return "\n".join(
        [
            _OPENING.format(newest=migrations[-1][0]),
            *(_MIGRATION.format(version=v, name=name, body=text) for v, name, text in migrations),
            _DROP.format(declarations=declarations),
            *(text for folder in ("views", "functions", ".") for _, text in _files(folder)),
            _CLOSING.format(digest=_digest(), declarations=declarations),
        ]
    )


def _declarations() -> dict[str, str]:
    """What cannot be changed by replacing: a function's arguments and result; of a view, everything."""
    parts = {f"view {name[2:]}": text for name, text in _files("views")}
    for name, text in _files("functions"):
        parts[f"function {name}"] = text[text.index("create ") : text.index("\nlanguage")]
    return {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in parts.items()}


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
