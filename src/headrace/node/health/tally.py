"""Counts what a node has done since it started, for its health port and its vitals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from headrace.model import Claimed, Completed, CutOff, Failed, Released, Result, Verdict
from headrace.telemetry.prometheus import Histogram

RUN_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of run times, in seconds."""

_type_of = attrgetter("type")
TYPES = 1000  # of events that are counted apart; publishers may make up as many as they like


class Tally:
    def __init__(self) -> None:
        self.ended_by: Counter[tuple[str, str]] = Counter()
        """Attempts by type of event and outcome: completed, failed, dead_lettered, released,
        snoozed, abandoned, lost."""
        self.run_times = Histogram(RUN_BOUNDS)
        """Of attempts, in seconds."""
        self._types: set[str] = set()

    def completed(self, claims: Sequence[Claimed], ms: int | None) -> None:
        """Many, all of them completed in the same time."""
        for type, count in Counter(map(_type_of, claims)).items():
            self.ended_by[self._counted_as(type), "completed"] += count
        self.run_times.add((ms or 0) / 1000, len(claims))

    def ended(self, result: Result, verdict: Verdict) -> None:
        type = self._counted_as(getattr(result.claimed, "type", ""))
        self.ended_by[type, _how(result, verdict)] += 1
        if result.execution_time_ms is not None:
            self.run_times.add(result.execution_time_ms / 1000)

    def count(self, how: str) -> int:
        """The attempts that ended so, of all types."""
        return sum(count for (_, ended), count in self.ended_by.items() if ended == how)

    def _counted_as(self, type: str) -> str:
        if type in self._types or len(self._types) < TYPES:
            self._types.add(type)
            return type
        return "other"


def _how(result: Result, verdict: Verdict) -> str:
    if verdict.verdict in ("lost", "conflict"):
        return "lost"
    match result:
        case Completed():
            return "completed"
        case Failed():
            return "failed" if verdict.retry_at else "dead_lettered"
        case CutOff():
            return "abandoned"
        case Released(delay=None):
            return "released"
    return "snoozed"
