"""The SQL files of this release, and how a schema's functions and views give way to them."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from importlib import resources
from typing import NamedTuple

# Functions and views are replaced in place, so that a call in flight does not lose its function. A
# drop comes first only where replacing is impossible: the declaration differs from that of the
# installed release, or this release does not have the object. Views depend on each other: all are
# dropped together, or none; also where one calls a function that is dropped.
_DROP = """\
do $$
declare
    wanted constant jsonb := $json${declarations}$json$;
    overloads constant jsonb := '{overloads}';
    had constant jsonb := coalesce(({had}), '{{}}');
    views constant boolean := exists (
        select from pg_class c where c.relnamespace = '{schema}'::regnamespace and c.relkind = 'v'
        and (not wanted ? ('view ' || c.relname)
             or wanted -> ('view ' || c.relname) is distinct from had -> ('view ' || c.relname)))
        or exists (
        select from pg_depend d join pg_rewrite w on w.oid = d.objid join pg_class v on v.oid = w.ev_class
        join pg_proc p on p.oid = d.refobjid
        where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_proc'::regclass
        and v.relnamespace = '{schema}'::regnamespace and p.pronamespace = '{schema}'::regnamespace
        and (not wanted ? ('function ' || p.proname)
             or wanted -> ('function ' || p.proname) is distinct from had -> ('function ' || p.proname)));
    old record;
    dropped boolean := true;
    refusal text;
begin
    while dropped loop
        dropped := false;
        refusal := null;
        for old in
            select format('drop view {schema}.%I', c.relname) as command
            from pg_class c where c.relnamespace = '{schema}'::regnamespace and c.relkind = 'v' and views
            union all
            select format('drop routine %s', p.oid::regprocedure)
            from pg_proc p where p.pronamespace = '{schema}'::regnamespace
            and (not wanted ? ('function ' || p.proname)
                 or wanted -> ('function ' || p.proname) is distinct from had -> ('function ' || p.proname)
                 or (select count(*) from pg_proc o where o.pronamespace = p.pronamespace and o.proname = p.proname)
                    > coalesce((overloads ->> p.proname)::int, 1))
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
            message = 'an object of yours depends on one that this release replaces; '
                      'drop it, migrate, and create it again',
            detail = refusal;
    end if;
end $$;
"""

_CREATION = re.compile(r"^create or replace (function|procedure|view) \w+\.(\w+)", re.MULTILINE)


class Declaration(NamedTuple):
    """Text that replacing cannot change: a function's arguments and result; all of a view."""

    kind: str
    name: str
    text: str


def files(folder: str) -> list[tuple[str, str]]:
    """The SQL files of a folder, in the order of their names: (name, text)."""
    path = resources.files("headrace") / "sql" / folder
    return sorted(
        (file.name.removesuffix(".sql"), file.read_text())
        for file in path.iterdir()
        if file.name.endswith(".sql")
    )


def files_below(folder: str) -> list[tuple[str, str]]:
    """The SQL files of a folder and of the folders in it, in the order of their paths."""
    path = resources.files("headrace") / "sql" / folder
    inner = sorted(one.name for one in path.iterdir() if one.is_dir())
    return files(folder) + [file for name in inner for file in files_below(f"{folder}/{name}")]


def digest(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()


def declared(texts: list[str]) -> str:
    """The declarations in these files as JSON: a digest for each name, whatever its overloads."""
    parts: dict[str, str] = {}
    for kind, name, text in _declarations(texts):
        parts[f"{kind} {name}"] = parts.get(f"{kind} {name}", "") + text
    digests = {name: digest([text])[:16] for name, text in parts.items()}
    return json.dumps(digests, indent=1)


def clearing(schema: str, texts: list[str], had: str) -> str:
    """SQL that drops functions and views that these files do not have, or cannot replace.

    had: a query for the result of `declared` when the schema was last brought up to date.
    """
    names = Counter(one.name for one in _declarations(texts) if one.kind == "function")
    overloads = {name: count for name, count in names.items() if count > 1}
    return _DROP.format(
        schema=schema, declarations=declared(texts), overloads=json.dumps(overloads), had=had
    )


def _declarations(texts: list[str]) -> Iterator[Declaration]:
    for text in texts:
        for found in _CREATION.finditer(text):
            kind, name = found.groups()
            if kind == "view":
                yield Declaration("view", name, text)
            else:
                end = text.index("\nlanguage", found.start())
                yield Declaration("function", name, text[found.start() : end])
