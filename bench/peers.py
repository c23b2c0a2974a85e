"""What Headrace is measured against: the floor, a bare table, and pgmq where its SQL is installed."""

import importlib.util
from pathlib import Path
from typing import Any

import psycopg

# A key is the one index on id that even a bare queue needs.
FLOOR = """
create table floor (
    id bigserial primary key,
    created_at timestamptz not null default now(),
    payload jsonb not null
);
create table own (id bigint, at timestamptz not null default now());
"""

# The quickest of the ways to write it, as the engine's own claim is written: the textbook's
# `where id in (select …)` is planned as a join, and on an empty table as a bad one.
FLOOR_CLAIM = """
with picked as materialized (
    select ctid from floor order by id limit {limit} for update skip locked
)
delete from floor where ctid = any (array(select ctid from picked))
returning id, payload::text"""


def install(connection: psycopg.Connection[Any]) -> None:
    connection.execute(FLOOR)
    script = _pgmq_script()
    if script is not None:
        connection.execute(script.read_bytes())
        connection.execute("select pgmq.create('bench')")


def has_pgmq() -> bool:
    return _pgmq_script() is not None


def has_asyncpg() -> bool:
    return importlib.util.find_spec("asyncpg") is not None


def absent() -> list[str]:
    """What could be measured too, if it were installed."""
    return [
        *([] if has_pgmq() else ["pgmq (pip install pgmq)"]),
        *([] if has_asyncpg() else ["the floor through asyncpg (pip install asyncpg)"]),
    ]


def _pgmq_script() -> Path | None:
    # Found, not imported: the package brings pgmq's SQL along, and that is all that is wanted.
    spec = importlib.util.find_spec("pgmq")
    for location in (spec and spec.submodule_search_locations) or ():
        script = Path(location) / "sql" / "pgmq.sql"
        if script.exists():
            return script
    return None
