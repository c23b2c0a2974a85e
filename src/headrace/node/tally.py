"""What a node has done since it started, for its health port and for whoever asks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from headrace.model import Claimed, Completed, CutOff, Failed, Result, Verdict

BUCKETS = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000)
"""Upper bounds of run times, in milliseconds."""

_BOUNDS = (*BUCKETS, 0)
_type_of = attrgetter("type")
TYPES = 1000  # of events that are counted apart; publishers may make up as many as they like


class Tally:
    def __init__(self) -> None:
        self.ended_by: Counter[tuple[str, str]] = Counter()
        """By type of event and how the attempt ended: completed, failed, dead_lettered, released, abandoned, lost."""
        self.run_times: Counter[int] = Counter()
        """By the bucket's upper bound; 0: longer than all."""
        self.milliseconds = 0
        self._types: set[str] = set()

    def completed(self, claims: Sequence[Claimed], ms: int | None) -> None:
        """Many, all of them completed in the same time."""
        for type, count in Counter(map(_type_of, claims)).items():
            self.ended_by[self._counted_as(type), "completed"] += count
        self._ran(ms or 0, len(claims))

    def ended(self, result: Result, verdict: Verdict) -> None:
        type = self._counted_as(getattr(result.claimed, "type", ""))
        self.ended_by[type, _how(result, verdict)] += 1
        if result.execution_time_ms is not None:
            self._ran(result.execution_time_ms, 1)

    def count(self, how: str) -> int:
        """The attempts that ended so, of all types."""
        return sum(count for (_, ended), count in self.ended_by.items() if ended == how)

    def _counted_as(self, type: str) -> str:
        if type in self._types or len(self._types) < TYPES:
            self._types.add(type)
            return type
        return "other"

    def _ran(self, ms: int, count: int) -> None:
        self.run_times[_BOUNDS[bisect_left(BUCKETS, ms)]] += count
        self.milliseconds += ms * count


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
    return "released"
