"""The goals, each with what was measured: a row for every one, also for those that were not measured this time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from bench.cases import Case, Goal, cases, memory, pickup
from bench.cases.memory import Memory
from bench.cases.pickup import Pickup
from bench.results import WAL_GOAL, Footprint, Outcome, Row

PICKUP, WAL, MEMORY = "pick-up", "WAL", "memory"
# What matters most comes first; the rest follows as the cases do.
ORDER = (
    "node",
    "nodes",
    "in-and-out",
    "bulk",
    "single",
    "tasks",
    "threads",
    "http",
    PICKUP,
    WAL,
    "backlog",
    "rare",
    "snapshot",
    "transactional-node",
    MEMORY,
)


def rows(
    outcomes: Sequence[Outcome],
    wal: Sequence[Footprint],
    picked_up: Pickup | None,
    remembered: Memory | None,
    absent: Mapping[str, str],
) -> list[Row]:
    found = {one.case: one for one in outcomes}
    known = {case.name: case for case in cases()}
    order = [*ORDER, *(name for name in known if name not in ORDER)]
    special = {PICKUP: _pickup(picked_up), WAL: _wal(wal), MEMORY: _memory(remembered)}
    return [
        row
        for name in order
        for row in special.get(name) or _ratios(known[name], found.get(name), absent)
    ]


def _ratios(case: Case, outcome: Outcome | None, absent: Mapping[str, str]) -> list[Row]:
    return [_ratio(case, goal, outcome, absent) for goal in case.goals]


def _ratio(case: Case, goal: Goal, outcome: Outcome | None, absent: Mapping[str, str]) -> Row:
    at: Literal["least", "most"] = "least" if goal.at_most is None else "most"
    bound = goal.at_least if goal.at_most is None else goal.at_most
    assert bound is not None
    if outcome is not None:
        for one in outcome.comparisons:
            if one.against == goal.against:
                spread = {"least": one.least, "most": one.most}
                return Row(case.title, goal.against, "×", one.ratio, at, bound, one.met, **spread)
    why = _why(case, goal.against, outcome, absent)
    return Row(case.title, goal.against, "×", None, at, bound, None, why)


def _why(case: Case, against: str, outcome: Outcome | None, absent: Mapping[str, str]) -> str:
    if outcome is None:
        return "--full" if case.full else f"--only {case.name}"
    for one in outcome.left_out:
        if one.name == against:
            return one.why.splitlines()[0]
    return f"needs {absent.get(against, against)}"


def _pickup(found: Pickup | None) -> list[Row]:
    what = "pick-up by an idle node, above it"
    if found is None:
        why = f"--only {PICKUP}"
        return [
            Row(f"{what}, {which}", "NOTIFY", "ms", None, "most", goal, None, why)
            for which, goal in pickup.GOALS.items()
        ]
    return [
        Row(f"{what}, {which}", "NOTIFY", "ms", found.above(which), "most", goal, found.met(which))
        for which, goal in pickup.GOALS.items()
    ]


def _wal(found: Sequence[Footprint]) -> list[Row]:
    what = "WAL per event, publish + drain"
    for one in found:
        if one.goal is not None:
            return [Row(what, "", "B", one.bytes, "most", one.goal, one.met)]
    return [Row(what, "", "B", None, "most", WAL_GOAL, None, "--only bulk --only drain")]


def _memory(found: Memory | None) -> list[Row]:
    what = "memory of a worker, growth after its first tenth of the events"
    if found is None:
        return [Row(what, "", "MiB", None, "most", memory.GOAL, None, "--full")]
    return [Row(what, "", "MiB", found.growth, "most", memory.GOAL, found.met)]
