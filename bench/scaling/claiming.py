"""Single claims, with the buffers they touch: what a claim costs when much waits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

import headrace
from bench.measure import Meter
from bench.payloads import BATCH
from bench.scaling.costs import Costs, metered

CLAIM = 50  # events a claim
HOT = ("ready", "delayed", "leases", "held", "counts")
# The reader is a session of its own, so that what it reads is not its own doing.
BUFFERS = (
    "select (blks_hit + blks_read)::float8 from pg_stat_database where datname = current_database()"
)
FLUSH = "select pg_stat_force_next_flush()"


class Claimer:
    """One session, which publishes, claims and completes, and tells what it touched."""

    def __init__(self, dsn: str, meter: Meter) -> None:
        self._meter = meter
        self._connection = psycopg.connect(dsn, autocommit=True, prepare_threshold=0)
        self._reader = psycopg.connect(dsn, autocommit=True)
        self.queue = headrace.EventQueue(self._connection)

    def __enter__(self) -> Claimer:
        return self

    def __exit__(self, *reason: object) -> None:
        self._connection.close()
        self._reader.close()

    def vacuum(self) -> None:
        """As autovacuum would have by now."""
        for table in (*HOT, "events"):
            self._reader.execute(f"vacuum (analyze) headrace.{table}")

    def cost(self, claims: int, types: Sequence[str] | None = None) -> Costs:
        """Of `claims` claims, for each event; what they took is finished afterwards."""
        claimed: list[headrace.Claimed] = []

        def claim() -> None:
            for _ in range(claims):
                batch = self.queue.poll(types=types, max_events=CLAIM)
                if len(batch) < CLAIM:
                    raise RuntimeError(f"{len(batch)} events claimed instead of {CLAIM}")
                claimed.extend(batch)

        before = self._touched()
        found = metered(self._meter, claims * CLAIM, claim)
        buffers = (self._touched() - before) / (claims * CLAIM)
        self.finish(claimed)
        rate = found.pop("rate")
        assert rate is not None
        return {"claim_ms": CLAIM / rate * 1e3, **found, "buffers": buffers}

    def warm_up(self, claims: int, types: Sequence[str] | None = None) -> None:
        """Plans are made, and what is found on the way is remembered, as by any client that has run for a while."""
        for _ in range(claims):
            self.finish(self.queue.poll(types=types, max_events=CLAIM))

    def finish(self, claimed: list[headrace.Claimed]) -> None:
        for at in range(0, len(claimed), BATCH):
            self.queue.complete(claimed[at : at + BATCH])

    def _touched(self) -> float:
        self._connection.execute(FLUSH)
        row: Any = self._reader.execute(BUFFERS).fetchone()
        return float(row[0])
