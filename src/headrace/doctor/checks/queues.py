"""Checks of the queues: are their events handled."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from headrace.doctor.database import Database, span
from headrace.doctor.findings import CheckResult, fine, problem, warning

# The same as attention reports. Its cost grows with queues and claims, not with waiting events.
_WAITING = """
select w.namespace, w.queue, w.waiting as ready, w.waited as since
from headrace.longest_waits() w where w.waited > %(limit)s order by w.waited desc
"""
_CLAIMED = """
select t.namespace, t.queue, clock_timestamp() - t.oldest_claim_at as since
from headrace.totals() t where clock_timestamp() - t.oldest_claim_at > %(limit)s order by 3 desc
"""
_ORPHANS = """
select e.id from headrace.events(%(namespace)s, %(queue)s, orphaned => true, orphan_after => %(limit)s, "limit" => 3) e order by 1
"""
_EXPIRED = """
select t.expired as leases, t.at - t.expired_since as since from headrace.ticking(%(limit)s) t
"""
SHOWN = 5
MOST = 10_000  # as far as longest_waits counts
ENOUGH = 1000  # as far as ticking counts


def oldest_ready(db: Database) -> Iterator[CheckResult]:
    found = db.rows(_WAITING, limit=db.limits.waiting)
    for one in found[:SHOWN]:
        where = _named(one.namespace, one.queue)
        more = " or more" if one.ready >= MOST else ""
        yield warning(
            f"{one.namespace}/{one.queue}: {one.ready:,}{more} events wait, and the oldest "
            f"has been ready for {span(one.since)}",
            f"headrace stats{where}  -- and start workers for it: headrace worker MODULE:NODE",
        )
    yield from _and_more(len(found))
    if not found:
        yield fine(f"no event has waited for {span(db.limits.waiting)}")


def orphans(db: Database) -> Iterator[CheckResult]:
    found = db.rows(_CLAIMED, limit=db.limits.claimed)
    for one in found[:SHOWN]:
        ids = db.rows(_ORPHANS, namespace=one.namespace, queue=one.queue, limit=db.limits.claimed)
        yield warning(
            f"{one.namespace}/{one.queue}: an event has been in progress for "
            f"{span(one.since)}; its worker hangs, or takes long",
            f"headrace reset {' '.join(str(row.id) for row in ids) or 'ID'}{_named(one.namespace, one.queue)}",
        )
    yield from _and_more(len(found))
    if not found:
        yield fine(f"no event has been in progress for {span(db.limits.claimed)}")


def expired_leases(db: Database) -> Iterator[CheckResult]:
    found = db.row(_EXPIRED, limit=db.limits.expired)
    if found.leases:
        many = f"{found.leases} leases" if found.leases < ENOUGH else f"{ENOUGH} leases or more"
        yield problem(
            f"{many} have expired, the oldest {span(found.since)} ago, and no tick has "
            "released their events",
            "select headrace.tick()  -- and let something do so every second: headrace serve, or a node",
        )
    else:
        yield fine("no expired leases")


def _and_more(found: int) -> Iterator[CheckResult]:
    if found > SHOWN:
        yield warning(f"the same in {found - SHOWN} more queues", "headrace doctor  -- once more")


def _named(namespace: str, queue: str) -> str:
    """Options that name a queue, where it is not the usual one."""
    return "".join(
        f" --{option} {shlex.quote(value)}"
        for option, value, usual in (("namespace", namespace, "default"), ("queue", queue, "main"))
        if value != usual
    )
