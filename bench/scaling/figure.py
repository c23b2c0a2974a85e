"""What a case of this family finds: samples at several places of a scale, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import msgspec

from bench.server import SETTINGS, Server, serve

VERDICTS = {True: ", yes", False: ", NO", None: ""}


class Measure(msgspec.Struct, frozen=True):
    title: str
    unit: str


MEASURES = {
    "rate": Measure("events a second", "/s"),
    "megabytes": Measure("payload a second", "MB/s"),
    "claim_ms": Measure("a claim", "ms"),
    "tick_ms": Measure("a tick", "ms"),
    "cpu_us": Measure("CPU per event, PostgreSQL and client", "µs"),
    "server_cpu_us": Measure("PostgreSQL's CPU per event", "µs"),
    "client_cpu_us": Measure("clients' CPU per event", "µs"),
    "waiting_percent": Measure("waiting for others or the disk", "% of the time"),
    "wal_bytes": Measure("WAL per event", "B"),
    "buffers": Measure("buffers per event", ""),
    "rows": Measure("rows for a thousand events", ""),
    "depth": Measure("events waiting", ""),
    "p50_ms": Measure("from publish to handler, p50", "ms"),
    "p99_ms": Measure("from publish to handler, p99", "ms"),
    "late_ms": Measure("the publisher is behind its schedule by", "ms"),
    "hot_mb": Measure("size of the hot tables", "MB"),
    "dead_rows": Measure("dead rows in the hot tables", ""),
    "vacuums": Measure("autovacuum's visits so far", ""),
    "queries_an_hour": Measure("queries an hour", ""),
    "server_cpu_percent": Measure("PostgreSQL's CPU", "% of a core"),
    "client_cpu_percent": Measure("its own CPU", "% of a core"),
    "ms": Measure("takes", "ms"),
    "cpu_ms": Measure("CPU", "ms"),
}


class Sample(msgspec.Struct, frozen=True):
    """One turn. Several with the same series and x are rounds."""

    series: str
    x: float
    values: dict[str, float]


class Finding(msgspec.Struct, frozen=True):
    """What is worked out from the samples; `met` is None where nothing was aimed for."""

    what: str
    value: str
    met: bool | None = None


class Figure(msgspec.Struct, frozen=True):
    case: str
    title: str
    at: str
    short: bool
    machine: dict[str, Any]
    x: str
    samples: list[Sample]
    findings: list[Finding]
    facts: dict[str, float]
    seconds: float
    format: int = 1

    def series(self) -> list[str]:
        return list(dict.fromkeys(sample.series for sample in self.samples))

    def measures(self, series: str) -> list[str]:
        found = [name for one in self.samples if one.series == series for name in one.values]
        return [name for name in MEASURES if name in found]

    def places(self, series: str, measure: str) -> dict[float, list[float]]:
        return places(self.samples, series, measure)

    def medians(self, series: str, measure: str) -> dict[float, float]:
        return medians(self.samples, series, measure)


def places(samples: list[Sample], series: str, measure: str) -> dict[float, list[float]]:
    """Where it was measured, and what was found there in every round."""
    found: dict[float, list[float]] = {}
    for one in samples:
        if one.series == series and measure in one.values:
            found.setdefault(one.x, []).append(one.values[measure])
    return dict(sorted(found.items()))


def medians(samples: list[Sample], series: str, measure: str) -> dict[float, float]:
    return {x: median(values) for x, values in places(samples, series, measure).items()}


@dataclass
class Notes:
    """Where a case writes what it finds, as it finds it."""

    say: Callable[[str], None]
    samples: list[Sample] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, float] = field(default_factory=dict)

    def note(self, series: str, x: float, **values: float | None) -> None:
        known = {name: value for name, value in values.items() if value is not None}
        self.samples.append(Sample(series, x, known))
        self.say(f"{series}, {x:,.10g}: {', '.join(map(told, known, known.values()))}")

    def medians(self, series: str, measure: str) -> dict[float, float]:
        return medians(self.samples, series, measure)

    def find(self, what: str, value: str, met: bool | None = None) -> None:
        self.findings.append(Finding(what, value, met))
        self.say(f"{what}: {value}{VERDICTS[met]}")


@dataclass(frozen=True)
class Setting:
    """What a case may use."""

    dsn: str | None
    short: bool

    @contextmanager
    def server(self, settings: Mapping[str, str] = SETTINGS) -> Iterator[Server]:
        with serve(self.dsn, settings) as server:
            yield server

    def choose(self, usually: Any, short: Any) -> Any:
        return short if self.short else usually


@dataclass(frozen=True)
class Case:
    name: str
    title: str
    x: str
    measure: Callable[[Setting, Notes], dict[str, Any]]
    """Returns the machine it was measured on."""


def told(measure: str, value: float) -> str:
    unit = MEASURES[measure].unit
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    return f"{measure} {value:,.{digits}f}{f' {unit}' if unit else ''}"
