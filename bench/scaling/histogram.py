"""How often something took how long, to a twentieth, in a few hundred numbers at most."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

STEP = math.log(1.05)


class Histogram:
    """Its counts are by the logarithm of the time, so that those of several seconds can be added."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def add(self, seconds: float) -> None:
        self.counts[int(math.log(max(seconds, 1e-5)) // STEP)] += 1

    def merge(self, counts: Mapping[str, int]) -> None:
        self.counts.update({int(step): count for step, count in counts.items()})

    @property
    def total(self) -> int:
        return self.counts.total()

    def percentile(self, percent: float) -> float | None:
        """In seconds; None: nothing was counted."""
        passed = 0
        for step, count in sorted(self.counts.items()):
            passed += count
            if passed >= self.total * percent / 100:
                return math.exp((step + 0.5) * STEP)
        return None
