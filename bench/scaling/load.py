"""A load that lasts: one publisher at a fixed rate, one node, and a look at everything every few seconds."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from bench.measure import Meter
from bench.scaling.figure import Notes
from bench.scaling.histogram import Histogram
from bench.scaling.programs import Program
from bench.server import SETTINGS, Server

# As a server is: autovacuum and checkpoints come when they come. Only its memory and its WAL are not those of a toy.
AS_IT_RUNS = {
    "shared_buffers": SETTINGS["shared_buffers"],
    "max_wal_size": SETTINGS["max_wal_size"],
    "track_functions": "pl",  # so that claims are timed
}
HOT = ["ready", "leases", "held", "delayed", "counts"]
LOOK = """
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8,
       (select blks_hit + blks_read from pg_stat_database where datname = current_database())::float8,
       (select coalesce(sum(pg_total_relation_size(c.oid)), 0) from pg_class c
        where c.relnamespace = 'headrace'::regnamespace and c.relname = any (%(hot)s) and c.relkind = 'r')::float8,
       coalesce(sum(s.n_dead_tup), 0)::float8,
       coalesce(sum(s.autovacuum_count), 0)::float8
from pg_stat_user_tables s where s.schemaname = 'headrace' and s.relname = any (%(hot)s)"""
# Of what waits; none of it is read one by one, so it costs little however much there is.
DEPTH = "select coalesce(sum(coalesce(cardinality(pack), 1)), 0)::float8 from headrace.ready"
CLAIMS = """
select coalesce(sum(calls), 0)::float8, coalesce(sum(total_time), 0)::float8 from pg_stat_user_functions
where schemaname = 'headrace' and funcname = 'poll_batch'"""


class Look:
    """All the counters at one moment."""

    def __init__(
        self, admin: psycopg.Connection[Any], meter: Meter, programs: list[Program]
    ) -> None:
        self.at = time.monotonic()
        row: Any = admin.execute(LOOK, {"hot": HOT}).fetchone()
        self.wal, self.buffers, self.hot, self.dead, self.vacuums = row
        row = admin.execute(DEPTH).fetchone()
        self.depth: float = row[0]
        row = admin.execute(CLAIMS).fetchone()
        self.claims, self.claiming = row
        self.server_cpu = meter.read(time.process_time).server_cpu
        self.client_cpu = sum(program.cpu for program in programs)


class Load:
    """Notes a sample of each interval, from `watch` to `watch` in a series of its own."""

    def __init__(
        self, dsn: str, meter: Meter, notes: Notes, publisher: Program, node: Program
    ) -> None:
        self._admin = psycopg.connect(dsn, autocommit=True)
        self._meter = meter
        self._notes = notes
        self._publisher, self._node = publisher, node
        self._started = time.monotonic()
        self._last = self._look()

    def close(self) -> None:
        self._admin.close()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def watch(self, series: str, seconds: float, every: float) -> None:
        until = self.seconds + seconds
        while self.seconds < until:
            time.sleep(min(every, max(until - self.seconds, 0.1)))
            self._sample(series)

    def skip(self, seconds: float) -> None:
        """A beginning that is not counted."""
        time.sleep(seconds)
        self._handled()
        self._late()
        self._last = self._look()

    def _sample(self, series: str) -> None:
        took, late, before = self._handled(), self._late(), self._last
        now = self._last = self._look()
        events = max(took.total, 1)
        claims = now.claims - before.claims
        known = now.server_cpu is not None and before.server_cpu is not None
        self._notes.note(
            series,
            round(self.seconds, 1),
            rate=took.total / (now.at - before.at),
            depth=now.depth,
            p50_ms=_milliseconds(took, 50),
            p99_ms=_milliseconds(took, 99),
            late_ms=late * 1e3,
            claim_ms=(now.claiming - before.claiming) / claims if claims else None,
            server_cpu_us=(now.server_cpu - before.server_cpu) / events * 1e6 if known else None,  # type: ignore[operator]
            client_cpu_us=(now.client_cpu - before.client_cpu) / events * 1e6,
            wal_bytes=(now.wal - before.wal) / events,
            buffers=(now.buffers - before.buffers) / events,
            hot_mb=now.hot / 1e6,
            dead_rows=now.dead,
            vacuums=now.vacuums,
        )

    def _handled(self) -> Histogram:
        took = Histogram()
        for line in self._node.heard("handled"):
            took.merge(json.loads(line))
        return took

    def _late(self) -> float:
        return max(
            (json.loads(line)["late"] for line in self._publisher.heard("published")), default=0.0
        )

    def _look(self) -> Look:
        return Look(self._admin, self._meter, [self._publisher, self._node])


@contextmanager
def load(server: Server, dsn: str, notes: Notes, rate: float, together: int) -> Iterator[Load]:
    with (
        closing(Meter(server.dsn)) as meter,
        Program("timing", dsn) as node,
        Program("pacing", dsn, rate, together) as publisher,
    ):
        for program in (node, publisher):
            program.hear("ready")
        node.tell("go")
        node.hear("started")
        publisher.tell("go")
        with closing(Load(dsn, meter, notes, publisher, node)) as made:
            yield made


def _milliseconds(took: Histogram, percent: float) -> float | None:
    seconds = took.percentile(percent)
    return None if seconds is None else seconds * 1e3
