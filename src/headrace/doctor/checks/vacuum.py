"""Checks of vacuum. Rows of the hot tables live for moments: when vacuum cannot keep up, every
claim reads dead rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.doctor.database import Database, span
from headrace.doctor.findings import NEEDS_SCHEMA, CheckResult, fine, problem, unknown, warning

HOT = ("ready", "delayed", "keyed", "active", "held", "leases", "counts", "depths")
"""Tables that get and lose rows with every delivery."""

# Transactions of this database: those of other databases do not keep dead rows here. A standby's
# feedback does, from any database.
_OPEN = """
select a.pid, a.usename, coalesce(nullif(a.application_name, ''), a.backend_type) as program, a.state,
       clock_timestamp() - a.xact_start as since
from pg_stat_activity a
where a.pid <> pg_backend_pid() and clock_timestamp() - a.xact_start > %(limit)s
  and (a.datname = current_database() and a.backend_type = 'client backend' or a.backend_type = 'walsender')
  and (a.backend_xmin is not null or a.backend_xid is not null or a.state like 'idle in transaction%%')
order by a.xact_start limit 5
"""
_HIDDEN = """
select current_user as role, count(*) as sessions from pg_stat_activity a
where a.datname = current_database() and a.query = '<insufficient privilege>'
"""
_PREPARED = """
select p.gid, p.owner, clock_timestamp() - p.prepared as since from pg_prepared_xacts p
where p.database = current_database() and clock_timestamp() - p.prepared > %(limit)s order by p.prepared limit 5
"""
_TABLES = """
select c.relname as name, coalesce(s.n_dead_tup, 0) as dead, coalesce(s.n_live_tup, 0) as live,
       pg_total_relation_size(c.oid) as bytes, clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum) as since,
       coalesce(c.reloptions && '{autovacuum_enabled=false,autovacuum_enabled=off}', false) as is_off
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
left join pg_stat_user_tables s on s.relid = c.oid
where n.nspname = 'headrace' and c.relkind = 'r'
order by c.relname
"""


def oldest_snapshot(db: Database) -> Iterator[CheckResult]:
    found = db.rows(_OPEN, limit=db.limits.snapshot)
    for one in found:
        yield warning(
            f"a transaction of {one.usename} ({one.program}) has been open for "
            f"{span(one.since)} ({one.state}): no dead row can be removed meanwhile",
            f"select pg_terminate_backend({one.pid})",
        )
    hidden = db.row(_HIDDEN)
    if hidden.sessions:
        role = db.identifier(hidden.role)
        yield unknown(
            f"{hidden.role} may not see the activity of other sessions ({hidden.sessions})",
            f"grant pg_read_all_stats to {role}",
        )
    elif not found:
        yield fine(f"no transaction is older than {span(db.limits.snapshot)}")


def prepared_transactions(db: Database) -> Iterator[CheckResult]:
    found = db.rows(_PREPARED, limit=db.limits.snapshot)
    for one in found:
        yield warning(
            f"the prepared transaction {one.gid!r} of {one.owner} has not ended for "
            f"{span(one.since)}: it keeps its locks, and no later dead row can be removed",
            f"rollback prepared '{one.gid.replace(chr(39), chr(39) * 2)}'  -- or: commit prepared",
        )
    if not found:
        yield fine("no prepared transaction is left over")


def autovacuum(db: Database) -> Iterator[CheckResult]:
    off = db.rows(
        "select name from pg_settings where name in ('autovacuum', 'track_counts') and setting = 'off' order by name"
    )
    for one in off:
        yield problem(
            f"{one.name} is off: dead rows are not removed, and every claim reads them",
            f"alter system set {one.name} = on; select pg_reload_conf()",
        )
    tables = [one for one in _tables(db) if one.is_off]
    for one in tables:
        yield problem(
            f"autovacuum is switched off for headrace.{one.name}",
            f"alter table headrace.{one.name} reset (autovacuum_enabled)",
        )
    if not off and not tables:
        runs = [one.since for one in _hot(db) if one.since is not None]
        yield fine(f"on; it last ran {span(min(runs))} ago" if runs else "on")


def dead_rows(db: Database) -> Iterator[CheckResult]:
    hot = _hot(db)
    found = [one for one in hot if one.dead > max(db.limits.dead_rows, one.live)]
    for one in found:
        last = (
            "it was never vacuumed" if one.since is None else f"the last was {span(one.since)} ago"
        )
        yield warning(
            f"vacuum does not keep up: headrace.{one.name} has {one.dead:,} dead rows and "
            f"{one.live:,} live ones; {last}",
            f"vacuum headrace.{one.name}  -- and see oldest_snapshot: until that transaction "
            "ends, vacuum removes nothing",
        )
    if hot and not found:
        yield fine(f"{sum(one.dead for one in hot):,} in the hot tables")
    elif not hot:
        yield NEEDS_SCHEMA


def bloat(db: Database) -> Iterator[CheckResult]:
    hot = _hot(db)
    found = [one for one in hot if one.bytes > max(db.limits.bloat, one.live * 200 * 20)]
    for one in found:
        yield warning(
            f"headrace.{one.name} takes {one.bytes / 2**20:,.0f} MiB for {one.live:,} rows",
            f"vacuum full headrace.{one.name}  -- locks it for as long as it copies the live rows",
        )
    if hot and not found:
        yield fine(f"the hot tables take {sum(one.bytes for one in hot) / 2**20:,.0f} MiB")
    elif not hot:
        yield NEEDS_SCHEMA


def _hot(db: Database) -> list[Any]:
    return [one for one in _tables(db) if one.name in HOT]


def _tables(db: Database) -> list[Any]:
    return db.rows(_TABLES)
