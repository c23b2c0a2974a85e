"""A check of what is stored against the clock: was it ahead, is it now."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from headrace.doctor.database import Database, span
from headrace.doctor.findings import CheckResult, fine, problem, warning

AT_ONCE = "select headrace.tick(upkeep => true)"
LOOK = "date -u  -- on the database's machine"

# Rows can only have been written in the past; clocks are corrected by a minute at most. All of
# these tables are small.
_AHEAD = """
select * from (
    select 'leases' as what, max(coalesce(l.extended_at, l.picked_at)) - t.now as ahead from headrace.leases l, t group by t.now
    union all
    select 'schedules', max(greatest(s.planned_at, s.updated_at)) - t.now from headrace.scheduled_tasks s, t group by t.now
    union all
    select 'nodes', max(n.last_heartbeat) - t.now from headrace.nodes n, t group by t.now
    union all
    select 'readings of the clock', max(r.at) - t.now from headrace.clock_readings r, t group by t.now
    union all
    select 'looks of the upkeep', max(u.next_at) - t.now - interval '1 hour' from headrace.upkeep u, t
    where u.task in ('hourly', 'unhandled') group by t.now
) o
where o.ahead > interval '1 minute' order by 1
"""
_NOW = "with t as materialized (select headrace._now() as now) "
# The clock is believed when it has shown the same for the whole of the last hour.
_JUMP = """
select j.at - j.pause as before, j.at
from (select r.at, r.at - lag(r.at) over (order by r.at) as pause from headrace.clock_readings r) j
where j.pause > interval '7 days' order by j.at desc limit 1
"""
_MONTHS = """
select p.relname as parent, c.relname as name
from pg_class p
join pg_namespace n on n.oid = p.relnamespace
join pg_inherits i on i.inhparent = p.oid
join pg_class c on c.oid = i.inhrelid, t
where n.nspname = 'headrace' and p.relkind = 'p' and p.relname in ('events', 'outcomes')
  and coalesce((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \\(''([^'']+)''\\)'))[1]::timestamptz, 'infinity') > t.now
order by 2
"""
_NEWEST = _NOW + "select max({key}) as at from headrace.{name}, t where {key} > t.now"


def stored_times(db: Database) -> Iterator[CheckResult]:
    """Both ways: a row that is dated ahead of now was dated by a clock that was ahead, unless
    the clock is behind now."""
    planned = db.rows(_NOW + _AHEAD)
    for one in planned:
        yield problem(
            f"{one.what} are dated {span(one.ahead)} ahead of now: the database's clock was "
            "ahead then, or is behind now",
            f"{AT_ONCE}  -- plans them again, if this is the right time: {LOOK}",
        )
    jumps = db.rows(_JUMP)
    for one in jumps:
        yield warning(
            f"the database's clock went from {_told(one.before)} to {_told(one.at)}, or "
            "nothing ticked meanwhile. Retention deletes nothing by the new time until that "
            "has lasted for an hour",
            f"{LOOK}; if that is wrong: timedatectl set-ntp true",
        )
    newest = _newest(db)
    if newest is None:
        if not planned and not jumps:
            yield fine("nothing is dated ahead of now")
        return
    says = f"events or their ends are dated up to {_told(newest)}"
    [one] = db.rows("select extract(epoch from headrace._now()) as now")
    if abs(db.clock() - float(one.now)) > timedelta(minutes=1).total_seconds():
        yield warning(
            f"{says}: the database's clock was ahead then, or is behind now",
            f"{LOOK}; if that is wrong: timedatectl set-ntp true",
        )
    elif not planned and not jumps:
        yield fine(
            f"{says}, by a clock that was ahead: they are handled like other events, and kept "
            "from that date on"
        )


def _newest(db: Database) -> datetime | None:
    """The newest date in the months to come, which are empty as a rule, and in the default
    partition."""
    dates = [
        db.row(
            _NEWEST.format(
                key="created_at" if month.parent == "events" else "at",
                name=db.identifier(month.name),
            )
        ).at
        for month in db.rows(_NOW + _MONTHS)
    ]
    return max((date for date in dates if date is not None), default=None)


def _told(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M}"
