"""What it costs to share the ids with other databases: the same work at several strides."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import psycopg

import headrace
from bench.machine import machine
from bench.measure import Meter
from bench.scaling.costs import metered
from bench.scaling.figure import Case, Notes, Setting
from bench.scaling.filling import fill

ROUNDS = 3
STRIDES = (1, 8, 64, 1024)
DEARER = 1.05
"""What a stride may cost, in WAL and rows, in comparison with none."""
CLAIM = 500
ROWS = {
    "publish": "select count(*) from headrace.ready",
    "drain": "select count(*) from headrace.outcomes",
}


def cases() -> list[Case]:
    return [Case("strides", "Databases that share the ids", "stride", strides)]


def strides(setting: Setting, notes: Notes) -> dict[str, Any]:
    events = setting.choose(200_000, 20_000)
    with setting.server() as server, closing(Meter(server.dsn)) as meter:
        for _ in range(setting.choose(ROUNDS, 1)):
            for stride in STRIDES:
                with server.database() as dsn:
                    headrace.migrate(dsn, stride=stride)
                    worked(dsn, meter, stride, events, notes)
        judge(notes)
        return machine(server)


def worked(dsn: str, meter: Meter, stride: int, events: int, notes: Notes) -> None:
    """Publish in bulk, then drain, in one process."""
    with headrace.connect(dsn) as queue, psycopg.connect(dsn, autocommit=True) as looking:

        def drain() -> None:
            while claimed := queue.poll(max_events=CLAIM):
                queue.complete(claimed)

        for series, work in (("publish", lambda: fill(queue, events)), ("drain", drain)):
            found = metered(meter, events, work)
            [(rows,)] = looking.execute(ROWS[series]).fetchall()
            notes.note(series, stride, rows=rows / events * 1000, **found)


def judge(notes: Notes) -> None:
    for series in ROWS:
        for measure in ("wal_bytes", "rows"):
            found = notes.medians(series, measure)
            worst = max(found.values()) / found[1]
            notes.find(
                f"{series}, {measure}: the dearest stride beside 1, at most {DEARER}",
                f"{worst:.3f}",
                worst <= DEARER,
            )
