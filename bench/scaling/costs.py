"""What something cost for each event, by the names of the measures."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.measure import Meter, Sample

Costs = dict[str, float | None]


def costs(sample: Sample) -> Costs:
    return _of(sample.events, sample.seconds, sample.client_cpu, sample.server_cpu, sample.wal)


def metered(
    meter: Meter,
    events: int,
    work: Callable[[], object],
    client_cpu: Callable[[], float] = time.process_time,
) -> Costs:
    before, started = meter.read(client_cpu), time.perf_counter()
    work()
    took, after = time.perf_counter() - started, meter.read(client_cpu)
    known = before.server_cpu is not None and after.server_cpu is not None
    return _of(
        events,
        took,
        after.client_cpu - before.client_cpu,
        after.server_cpu - before.server_cpu if known else None,  # type: ignore[operator]
        after.wal - before.wal,
    )


def _of(
    events: int, seconds: float, client_cpu: float, server_cpu: float | None, wal: int
) -> Costs:
    return {
        "rate": events / seconds,
        "server_cpu_us": None if server_cpu is None else server_cpu / events * 1e6,
        "client_cpu_us": client_cpu / events * 1e6,
        "wal_bytes": wal / events,
    }
