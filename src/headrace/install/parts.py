"""Optional parts, installed on request: each has a folder in sql/parts and a schema of its own.

migrate runs a folder's files in the order of their names whenever one of them has changed. A file
may run any number of times: it replaces functions and views, and creates types and tables that are
missing. Some files have a meaning:

    check.sql     runs first: raises QU041 if the part cannot be installed
    remove.sql    runs before the part is removed: undoes changes outside its schema
    grants.json   the functions and views that the roles of Headrace may use; no other role may use
                  any. A view by its name may be read; "view: insert, update" grants those rights

Views and triggers of a part depend on tables of the schema headrace, never on its views and
functions: those are replaced without regard to parts.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources

from headrace.install.replace import (
    clearing,
    declared,
    digest,
    files,
)

PARTS = {
    "core": "core",
    "partman": "headrace_partman",
    "pg_cron": "headrace_cron",
    "pgmq": "pgmq",
}
"""All parts, each with its schema."""

_OPENING = """\
set local check_function_bodies = off;
do $$
begin
    if not exists (select from headrace.optional where name = '{name}') then
        if to_regnamespace('{schema}') is not null then
            raise exception using errcode = 'QU041', message =
                'There is a schema {schema} already, and it is not Headrace''s: '
                'rename it or drop it, then migrate again.';
        end if;
        create schema {schema};
    end if;
end $$;
"""

_GRANTS = """\
do $$
declare
    grants constant jsonb := '{grants}';
    role text;
    granted record;
begin
    revoke all on schema {schema} from public;
    revoke all on all tables in schema {schema} from public;
    revoke all on all routines in schema {schema} from public;
    for role in select rolname from pg_roles where rolname ~ '^headrace_(publisher|worker|reader|admin)$' loop
        execute format('revoke all on schema {schema} from %I', role);
        execute format('revoke all on all tables in schema {schema} from %I', role);
        execute format('revoke all on all routines in schema {schema} from %I', role);
        continue when not grants ? role;
        execute format('grant usage on schema {schema} to %I', role);
        for granted in
            select format('grant execute on routine %s to %I', p.oid::regprocedure, role) as command
            from pg_proc p where p.pronamespace = '{schema}'::regnamespace and grants -> role ? p.proname
            union all
            select format('grant select on {schema}.%I to %I', c.relname, role)
            from pg_class c
            where c.relnamespace = '{schema}'::regnamespace and c.relkind in ('v', 'r') and grants -> role ? c.relname
            union all
            select format('grant %s on {schema}.%I to %I', split_part(g, ': ', 2), split_part(g, ': ', 1), role)
            from jsonb_array_elements_text(grants -> role) g where g like '%: %'
        loop
            execute granted.command;
        end loop;
    end loop;
end $$;
"""

_CLOSING = """\
delete from headrace.optional where name = '{name}';
insert into headrace.optional values ('{name}', '{digest}', $json${declarations}$json$, clock_timestamp());
"""

_REMOVAL = """\
do $$
declare
    old record;
begin
    for old in
        select case c.relkind when 'S' then 'sequence' when 'c' then 'type' else 'table' end as kind, c.relname as name
        from pg_class c where c.relnamespace = '{schema}'::regnamespace and c.relkind in ('r', 'p', 'S', 'c')
        union all
        select 'type', t.typname
        from pg_type t where t.typnamespace = '{schema}'::regnamespace and t.typtype in ('e', 'd')
    loop
        execute format('drop %s if exists {schema}.%I', old.kind, old.name);
    end loop;
    drop schema {schema};
end $$;
delete from headrace.optional where name = '{name}';
"""

# A script cannot look at the database first: SQL tests whether the part is installed and up to
# date.
_GUARD = """\
do $guard$
begin
if {condition} then
execute $part$
{body}
$part$;
end if;
end $guard$;
"""


@cache
def digest_of(part: str) -> str:
    return digest(
        [*(text for _, text in _files(part)), _special(part, "remove.sql"), _grants(part)]
    )


@cache
def installation(part: str) -> str:
    """SQL that installs a part, or brings it up to date."""
    schema = PARTS[part]
    texts = [text for name, text in _files(part) if name != "check"]
    had = f"select o.declarations from headrace.optional o where o.name = '{part}'"
    return "\n".join(
        [
            _special(part, "check.sql"),
            _OPENING.format(name=part, schema=schema),
            clearing(schema, texts, had),
            *texts,
            _GRANTS.format(schema=schema, grants=_grants(part)),
            _CLOSING.format(name=part, digest=digest_of(part), declarations=declared(texts)),
        ]
    )


@cache
def removal(part: str) -> str:
    """SQL that removes an installed part and all that belongs to it."""
    schema = PARTS[part]
    return "\n".join(
        [
            _special(part, "remove.sql"),
            clearing(schema, [], "null::jsonb"),
            _REMOVAL.format(name=part, schema=schema),
        ]
    )


def script(part: str, wanted: bool | None) -> str:
    """SQL that does for a part what migrate does, in any state of the database.

    wanted: install it, remove it, or, if None, only bring it up to date where it is.
    """
    there = f"exists (select from headrace.optional where name = '{part}')"
    if wanted is False:
        return _GUARD.format(condition=there, body=removal(part))
    fresh = f"exists (select from headrace.optional where name = '{part}' and digest = '{digest_of(part)}')"
    outdated = f"not {fresh}" if wanted else f"{there} and not {fresh}"
    return _GUARD.format(condition=outdated, body=installation(part))


def _files(part: str) -> list[tuple[str, str]]:
    return [(name, text) for name, text in files(f"parts/{part}") if name != "remove"]


def _special(part: str, name: str) -> str:
    file = resources.files("headrace") / "sql" / "parts" / part / name
    return file.read_text() if file.is_file() else ""


def _grants(part: str) -> str:
    """grants.json on one line. A quote would end the SQL string around it; names have none."""
    return json.dumps(json.loads(_special(part, "grants.json") or "{}"))
