"""Checks of the way to the database: do notifications arrive, do the clocks agree."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta

import psycopg

from headrace.doctor.database import Database, span
from headrace.doctor.findings import CheckResult, fine, warning

PROBE = 2.0  # seconds that a notification may take


def pooler(db: Database) -> Iterator[CheckResult]:
    """A pooler that lends sessions out by the transaction has lent ours to another client when
    the notification comes."""
    channel = f"headrace_probe_{secrets.token_hex(8)}"
    with psycopg.connect(db.dsn, autocommit=True, prepare_threshold=None) as listener:
        listener.execute(f"listen {channel}")
        db.rows("select pg_notify(%(channel)s, '')", channel=channel)
        arrived = list(listener.notifies(timeout=PROBE, stop_after=1))
        listener.execute(f"unlisten {channel}")
    if arrived:
        yield fine("no transaction pooler: notifications arrive")
    else:
        yield warning(
            "notifications do not arrive: the connection goes through a transaction pooler, "
            "so an idle worker finds work at its next poll",
            "give workers the DSN of PostgreSQL itself; otherwise set prepare=False, or --pooler",
        )


def clock(db: Database) -> Iterator[CheckResult]:
    before = db.clock()
    theirs = float(db.row("select extract(epoch from clock_timestamp()) as now").now)
    after = db.clock()
    # The server read its clock between the two.
    apart = max(before - theirs, theirs - after, 0.0)
    if apart > db.limits.clock.total_seconds():
        ahead = "behind" if before > theirs else "ahead of"
        yield warning(
            f"the database's clock is {span(timedelta(seconds=apart))} {ahead} this "
            "machine's. Headrace uses the database's",
            "timedatectl set-ntp true  -- on both machines",
        )
    else:
        yield fine("the clocks of the database and this machine agree")
