"""Checks of the way to the database: do notifications arrive, do the clocks agree."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta

import psycopg

from headrace.doctor.findings import Verdict, fine, warning
from headrace.doctor.patient import Patient, span

PROBE = 2.0  # seconds that a notification may take


def pooler(patient: Patient) -> Iterator[Verdict]:
    """A pooler that lends sessions out by the transaction has lent ours to others when the notification comes."""
    channel = f"headrace_probe_{secrets.token_hex(8)}"
    with psycopg.connect(patient.dsn, autocommit=True, prepare_threshold=None) as listener:
        listener.execute(f"listen {channel}")
        patient.rows("select pg_notify(%(channel)s, '')", channel=channel)
        arrived = list(listener.notifies(timeout=PROBE, stop_after=1))
        listener.execute(f"unlisten {channel}")
    if arrived:
        yield fine("none: notifications arrive")
    else:
        yield warning(
            "notifications do not arrive: a transaction pooler is in between, so an idle worker finds work by its next poll",
            "give workers a DSN of PostgreSQL itself; else say prepare=False, or --pooler",
        )


def clock(patient: Patient) -> Iterator[Verdict]:
    before = patient.clock()
    theirs = float(patient.row("select extract(epoch from clock_timestamp()) as now").now)
    after = patient.clock()
    # It was asked for somewhere in between.
    apart = max(before - theirs, theirs - after, 0.0)
    if apart > patient.limits.clock.total_seconds():
        ahead = "behind" if before > theirs else "ahead of"
        yield warning(
            f"the database's clock is {span(timedelta(seconds=apart))} {ahead} this machine's. Headrace goes by the database's",
            "timedatectl set-ntp true  -- on both machines",
        )
    else:
        yield fine("the database's and this machine's agree")
