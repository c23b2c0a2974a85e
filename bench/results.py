"""What a run found: medians, ratios, and whether they are what was aimed for."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, Literal

import msgspec

from bench.cases import Case, Goal
from bench.cases.memory import Memory
from bench.cases.pickup import Pickup
from bench.measure import Failure, Played, Sample

OURS = "headrace"
WAL_GOAL = 750  # bytes per event, published and drained in batches


class Contest(msgspec.Struct, frozen=True):
    """One contender in one case: medians over the rounds."""

    name: str
    per_second: float
    server_cpu_us: float | None
    client_cpu_us: float
    wal_bytes: float
    vacuum_cpu_us: float | None
    vacuum_wal_bytes: float
    samples: list[Sample]
    p50_ms: float | None = None
    p99_ms: float | None = None


class Comparison(msgspec.Struct, frozen=True):
    against: str
    of: str  # "rates": the more the better; "times": the less
    ratio: float
    """The median of the rounds' ratios: what disturbs a round disturbs both, so this is steadier."""
    ratio_of_medians: float
    cpu_ratio: float | None
    """What ours uses for one that theirs uses, PostgreSQL and client together; the median again."""
    goal: float | None
    met: bool | None
    least: float | None = None
    """Of the rounds' ratios."""
    most: float | None = None


class Outcome(msgspec.Struct, frozen=True):
    case: str
    title: str
    events: int
    contenders: list[Contest]
    comparisons: list[Comparison]
    left_out: list[Failure] = []
    """Who broke off, or could not take part."""


class Footprint(msgspec.Struct, frozen=True):
    """WAL per event, published in bulk and drained in batches, without and with vacuum's."""

    contender: str
    bytes: float
    with_vacuum: float
    goal: float | None = None
    met: bool | None = None


class Row(msgspec.Struct, frozen=True):
    """A goal, and what was measured."""

    what: str
    against: str
    unit: str  # "×", "ms", "B" or "MiB"
    value: float | None
    at: Literal["least", "most"]
    goal: float
    met: bool | None
    why: str | None = None
    """Why it was not measured."""
    least: float | None = None
    """Of the rounds, where there were some."""
    most: float | None = None


class Results(msgspec.Struct, frozen=True):
    at: str
    machine: dict[str, Any]
    options: dict[str, Any]
    cases: list[Outcome]
    wal: list[Footprint]
    pickup: Pickup | None
    absent: list[str]
    format: int = 1
    versions: dict[str, str] = {}
    """Of the contenders that have one."""
    memory: Memory | None = None
    goals: list[Row] = []


def outcome(case: Case, played: Played) -> Outcome:
    samples = played.samples
    ours = samples[OURS]
    goals = {goal.against: goal for goal in case.goals}
    return Outcome(
        case.name,
        case.title,
        ours[0].events,
        [_contest(name, taken) for name, taken in samples.items()],
        [
            _compare(ours, taken, goals.get(name, Goal(name)))
            for name, taken in samples.items()
            if name != OURS
        ],
        played.left_out,
    )


def footprints(outcomes: Sequence[Outcome]) -> list[Footprint]:
    by_case = {one.case: {who.name: who for who in one.contenders} for one in outcomes}
    published = by_case.get("bulk", {})
    drained = {**by_case.get("node", {}), **by_case.get("drain", {})}
    found = []
    for name in published.keys() & drained.keys():
        both = (published[name], drained[name])
        size = sum(one.wal_bytes for one in both)
        vacuum = sum(one.vacuum_wal_bytes for one in both)
        goal = WAL_GOAL if name == OURS else None
        found.append(
            Footprint(name, size, size + vacuum, goal, None if goal is None else size <= goal)
        )
    return sorted(found, key=lambda one: (one.contender != OURS, one.bytes))


def _contest(name: str, samples: list[Sample]) -> Contest:
    return Contest(
        name,
        median(one.rate for one in samples),
        _micros([(one.server_cpu, one.events) for one in samples]),
        _micros([(one.client_cpu, one.events) for one in samples]) or 0.0,
        median(one.wal / one.events for one in samples),
        _micros([(one.vacuum_cpu, one.events) for one in samples]),
        median(one.vacuum_wal / one.events for one in samples),
        samples,
        _median_of_known([one.p50_ms for one in samples]),
        _median_of_known([one.p99_ms for one in samples]),
    )


def _median_of_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _micros(used: list[tuple[float | None, int]]) -> float | None:
    known = [cpu / events * 1e6 for cpu, events in used if cpu is not None]
    return median(known) if known else None


def _compare(ours: list[Sample], theirs: list[Sample], goal: Goal) -> Comparison:
    pairs = list(zip(ours, theirs, strict=True))
    cpu = [_cpu(our) / _cpu(their) for our, their in pairs if our.server_cpu is not None]
    cpu_ratio = median(cpu) if cpu else None
    turned = goal.at_most is not None  # times are compared, not rates
    ratios = [their.rate / our.rate if turned else our.rate / their.rate for our, their in pairs]
    ratio = median(ratios)
    of_medians = median(one.rate for one in ours) / median(one.rate for one in theirs)
    bound = goal.at_most if turned else goal.at_least
    return Comparison(
        goal.against,
        "times" if turned else "rates",
        ratio,
        1 / of_medians if turned else of_medians,
        cpu_ratio,
        bound,
        None if bound is None else (ratio <= bound if turned else ratio >= bound),
        min(ratios),
        max(ratios),
    )


def _cpu(sample: Sample) -> float:
    return ((sample.server_cpu or 0.0) + sample.client_cpu) / sample.events
