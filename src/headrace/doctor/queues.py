"""Checks of what is in the queues: does somebody work on it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from headrace.doctor.findings import Verdict, fine, problem, warning
from headrace.doctor.patient import Patient, span

# backlog looks at samples of large tables, and totals costs by the claim: neither grows with what waits.
_WAITING = """
select b.namespace, b.queue, sum(b.ready) as ready, clock_timestamp() - min(b.oldest_ready_at) as since
from headrace.backlog() b join headrace.totals() t on t.namespace = b.namespace and t.queue = b.queue
where t.state <> 'paused' and b.ready > 0
group by 1, 2 having clock_timestamp() - min(b.oldest_ready_at) > %(limit)s
order by 4 desc
"""
_CLAIMED = """
select t.namespace, t.queue, clock_timestamp() - t.oldest_claim_at as since
from headrace.totals() t where clock_timestamp() - t.oldest_claim_at > %(limit)s order by 3 desc
"""
_ORPHANS = """
select e.id from headrace.events(%(namespace)s, %(queue)s, orphaned => true, orphan_after => %(limit)s, "limit" => 3) e order by 1
"""
_EXPIRED = """
select count(*) as leases, clock_timestamp() - min(l.until) as since
from (select l.until from headrace.leases l where l.until < now() - %(limit)s
      and (l.events is not null or exists (select from headrace.held h where h.lease = l.id))
      order by l.until limit %(enough)s) l
"""
SHOWN, ENOUGH = 5, 1000


def oldest_ready(patient: Patient) -> Iterator[Verdict]:
    found = patient.rows(_WAITING, limit=patient.limits.waiting)
    for one in found[:SHOWN]:
        where = _named(one.namespace, one.queue)
        yield warning(
            f"{one.namespace}/{one.queue}: {one.ready:,} wait, and the oldest has been ready for {span(one.since)}",
            f"headrace stats{where}  -- and start workers for it: headrace worker MODULE:NODE",
        )
    yield from _and_more(len(found))
    if not found:
        yield fine(f"nothing has waited for {span(patient.limits.waiting)}")


def orphans(patient: Patient) -> Iterator[Verdict]:
    found = patient.rows(_CLAIMED, limit=patient.limits.claimed)
    for one in found[:SHOWN]:
        ids = patient.rows(
            _ORPHANS, namespace=one.namespace, queue=one.queue, limit=patient.limits.claimed
        )
        yield warning(
            f"{one.namespace}/{one.queue}: something has been in work for {span(one.since)}; its worker hangs, or takes long",
            f"headrace reset {' '.join(str(row.id) for row in ids) or 'ID'}{_named(one.namespace, one.queue)}",
        )
    yield from _and_more(len(found))
    if not found:
        yield fine(f"nothing has been in work for {span(patient.limits.claimed)}")


def expired_leases(patient: Patient) -> Iterator[Verdict]:
    found = patient.row(_EXPIRED, limit=patient.limits.expired, enough=ENOUGH)
    if found.leases:
        many = f"{found.leases} leases" if found.leases < ENOUGH else f"{ENOUGH} leases or more"
        yield problem(
            f"the time of {many} is over, of the oldest for {span(found.since)}, and nobody has taken back what they hold",
            "select headrace.tick()  -- and let something do so every second: headrace serve, or a node",
        )
    else:
        yield fine("none is left standing")


def _and_more(found: int) -> Iterator[Verdict]:
    if found > SHOWN:
        yield warning(f"the same in {found - SHOWN} more queues", "headrace doctor  -- once more")


def _named(namespace: str, queue: str) -> str:
    """Options that name a queue, where it is not the usual one."""
    return "".join(
        f" --{option} {shlex.quote(value)}"
        for option, value, usual in (("namespace", namespace, "default"), ("queue", queue, "main"))
        if value != usual
    )
