"""Checks of replication: does anybody have what is acknowledged, and can a client reach a server
that is no longer the primary."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.doctor.database import Database, span
from headrace.doctor.findings import CheckResult, fine, problem, unknown, warning

READ_WRITE = ("read-write", "primary")
REACHED = "2"  # seconds to connect to one host of a DSN

_PRIMARY = "select not pg_is_in_recovery() as so"
_SETTINGS = """
select current_setting('synchronous_standby_names') as names, current_setting('synchronous_commit') as waits
"""
# The details are null for a role that may not see them.
_STANDBYS = """
select coalesce(nullif(r.application_name, ''), r.pid::text) as name, r.state, r.sync_state, r.replay_lag,
       pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)::bigint as behind,
       pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)) as wal
from pg_stat_replication r order by 1
"""
_WAITING = """
select count(*) filter (where o.waits) as commits, max(o.since) filter (where o.waits) as since,
       count(*) filter (where o.query = '<insufficient privilege>') as hidden
from (select a.query, clock_timestamp() - a.query_start as since,
             a.wait_event = 'SyncRep' and clock_timestamp() - a.query_start > %(limit)s as waits
      from pg_stat_activity a where a.datname = current_database()) o
"""
_SLOTS = """
select o.*, pg_size_pretty(o.bytes) as wal
from (select s.slot_name, s.slot_type, s.active, s.xmin is not null as holds_rows, s.wal_status,
             pg_wal_lsn_diff(case when pg_is_in_recovery() then pg_last_wal_receive_lsn() else pg_current_wal_lsn() end,
                             s.restart_lsn) as bytes
      from pg_replication_slots s) o
where not o.active or o.bytes > %(limit)s or o.wal_status in ('unreserved', 'lost')
order by o.slot_name limit 5
"""
_WRITABLE = """
select not pg_is_in_recovery() and current_setting('default_transaction_read_only') = 'off' as so,
       case when not pg_is_in_recovery() then left(pg_walfile_name(pg_current_wal_lsn()), 8) end as timeline
"""
_NEEDED = re.compile(r"\s*(?:first\s+|any\s+)?(\d+)\s*\(", re.IGNORECASE)
_NOT_HERE = fine("this is a standby: its primary knows")
_ALONE = "alter system set synchronous_standby_names = ''; select pg_reload_conf()"


def synchronous(db: Database) -> Iterator[CheckResult]:
    """Whether a failover would lose what was acknowledged, and whether commits end at all."""
    if not db.row(_PRIMARY).so:
        yield _NOT_HERE
        return
    settings = db.row(_SETTINGS)
    standbys = db.rows(_STANDBYS)
    names = ", ".join(one.name for one in standbys)
    if not settings.names:
        if standbys:
            yield warning(
                f"{names} is asynchronous: a failover to it loses the events that it has not "
                "received, though their publish has returned",
                "synchronous_mode: true  -- of Patroni; or synchronous_standby_names",
            )
        else:
            yield fine("there is no standby")
    elif _is_hidden(standbys):
        yield _hidden(db)
    elif sum(one.sync_state in ("sync", "quorum") for one in standbys) < _needed(settings.names):
        yield problem(
            f"no commit ends: synchronous_standby_names is {settings.names!r}, and connected is "
            f"{names or 'nobody'}. Calls end as unknown when their time is up",
            f"start the standby  -- if it is lost for good: {_ALONE}",
        )
    elif settings.waits in ("off", "local"):
        yield warning(
            f"synchronous_commit is {settings.waits}: commits do not wait for the standby, and a "
            "failover may lose events whose publish has returned",
            "alter system set synchronous_commit = on; select pg_reload_conf()",
        )
    else:
        first = [one.name for one in standbys if one.sync_state in ("sync", "quorum")]
        yield fine(f"{', '.join(first)} has every acknowledged commit")


def waiting_commits(db: Database) -> Iterator[CheckResult]:
    """A standby that is connected and does not answer looks as if all was well."""
    found = db.row(_WAITING, limit=db.limits.commits)
    if found.commits:
        yield problem(
            f"{found.commits} commits have been waiting for the synchronous standby, one for "
            f"{span(found.since)}: it is away or does not answer",
            "select * from pg_stat_replication  -- and see to the standby",
        )
    elif found.hidden:
        yield _hidden(db, "what other sessions wait for")
    else:
        yield fine(f"no commit has waited for {span(db.limits.commits)}")


def standbys(db: Database) -> Iterator[CheckResult]:
    if not db.row(_PRIMARY).so:
        yield _NOT_HERE
        return
    found = db.rows(_STANDBYS)
    if _is_hidden(found):
        yield _hidden(db)
        return
    late = [one for one in found if _is_late(db, one)]
    for one in late:
        since = f" and {span(one.replay_lag)}" if one.replay_lag else ""
        yield warning(
            f"the standby {one.name} is {one.wal}{since} behind ({one.state}): a failover to it "
            "takes as much longer, and without synchronous replication loses as much",
            "select * from pg_stat_replication  -- and see to its network and disk",
        )
    if not late:
        count = f"{len(found)} connected, " if found else "none connected, "
        yield fine(f"{count}none behind")


def replication_slots(db: Database) -> Iterator[CheckResult]:
    found = db.rows(_SLOTS, limit=db.limits.slot)
    for one in found:
        rows = ", and every later dead row" if one.holds_rows else ""
        drop = f"select pg_drop_replication_slot('{one.slot_name}')"
        slot = f"the {one.slot_type} replication slot {one.slot_name}"
        if one.wal_status in ("unreserved", "lost"):
            yield problem(
                f"{slot} was too far behind: PostgreSQL removes the WAL that its reader needs",
                f"{drop}  -- and make the standby anew",
            )
        elif one.active:
            yield warning(
                f"the reader of {slot} is {one.wal} behind, and that WAL is kept{rows}",
                "select * from pg_stat_replication  -- and see to the reader",
            )
        else:
            yield warning(
                f"{slot} has no reader: it keeps {one.wal} of WAL{rows}",
                f"{drop}  -- if nobody comes back for it",
            )
    if not found:
        yield fine("no slot without a reader, and none far behind")


class _Host(NamedTuple):
    name: str
    is_writable: bool | None
    """None: it does not answer."""
    timeline: str | None


def hosts(db: Database) -> Iterator[CheckResult]:
    """A client takes the first host of its DSN that seems to take writes. Where a failover manager
    has died, the old primary still does, and what a client stores there is lost, or never
    acknowledged."""
    known = conninfo_to_dict(db.dsn)
    there = list(_each(known))
    if len(there) < 2:
        yield fine("the DSN names one host")
        return
    wanted = str(known.get("target_session_attrs") or "any")
    if wanted not in READ_WRITE:
        yield problem(
            f"the DSN names {len(there)} hosts and accepts any: clients may use a standby, which "
            "stores nothing",
            "add target_session_attrs=read-write to the DSN",
        )
    looked = [_look(db, name, where) for name, where in there]
    writable = [one for one in looked if one.is_writable]
    away = [one.name for one in looked if one.is_writable is None]
    if len(writable) > 1:
        newest = max(str(one.timeline) for one in writable)
        old = [one.name for one in writable if one.timeline != newest]
        orphan = f": {' and '.join(old)} was replaced by a failover" if old else ""
        yield problem(
            f"{' and '.join(one.name for one in writable)} take writes at the same time{orphan}. "
            "What is stored on the wrong one is lost",
            f"stop PostgreSQL on {' and '.join(old) or 'all of them but one'}, and see to its "
            "Patroni",
        )
    elif not writable:
        yield problem("no host of the DSN takes writes", "see to the cluster: patronictl list")
    if away:
        yield warning(f"{' and '.join(away)} does not answer", "start it, or take it off the DSN")
    elif len(writable) == 1 and wanted in READ_WRITE:
        yield fine(f"of {len(looked)} hosts {writable[0].name} takes writes")


def _each(known: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """The hosts of a DSN, each with what leads to it alone."""
    names = str(known.get("host") or "").split(",")
    addresses = str(known.get("hostaddr") or "").split(",")
    ports = str(known.get("port") or "").split(",")
    for n in range(max(len(names), len(addresses))):
        where = {
            "host": names[n] if n < len(names) else "",
            "hostaddr": addresses[n] if n < len(addresses) else "",
            "port": ports[n] if n < len(ports) else ports[0],
        }
        name = where["host"] or where["hostaddr"] or "localhost"
        yield f"{name}:{where['port'] or '5432'}", where


def _look(db: Database, name: str, where: dict[str, str]) -> _Host:
    dsn = make_conninfo(db.dsn, **where, target_session_attrs="any", connect_timeout=REACHED)
    try:
        with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
            found = Database(connection, dsn, db.limits, db.clock).row(_WRITABLE)
    except psycopg.OperationalError:
        return _Host(name, None, None)
    return _Host(name, found.so, found.timeline)


def _needed(names: str) -> int:
    """How many standbys a commit waits for: `ANY 2 (a, b, c)`, `FIRST 1 (a)`, `2 (a, b)`, `a, b`."""
    found = _NEEDED.match(names)
    return int(found[1]) if found else 1


def _is_late(db: Database, standby: Any) -> bool:
    lag = standby.replay_lag
    return (lag is not None and lag > db.limits.lag) or (standby.behind or 0) > db.limits.behind


def _is_hidden(standbys: list[Any]) -> bool:
    return any(one.state is None for one in standbys)


def _hidden(db: Database, what: str = "the state of standbys") -> CheckResult:
    role = db.identifier(db.connection.info.user)
    return unknown(f"{role} may not see {what}", f"grant pg_read_all_stats to {role}")
