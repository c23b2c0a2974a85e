"""Checks of what is in the queues: does somebody work on it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from headrace.doctor.findings import Verdict, fine, problem, warning
from headrace.doctor.patient import Patient, span

# What attention says, too; and it costs by the queue and the claim, not by what waits.
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


def oldest_ready(patient: Patient) -> Iterator[Verdict]:
    found = patient.rows(_WAITING, limit=patient.limits.waiting)
    for one in found[:SHOWN]:
        where = _named(one.namespace, one.queue)
        more = " or more" if one.ready >= MOST else ""
        yield warning(
            f"{one.namespace}/{one.queue}: {one.ready:,}{more} wait, and the oldest has been ready for {span(one.since)}",
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
    found = patient.row(_EXPIRED, limit=patient.limits.expired)
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
