"""Whether something grew while it lasted: by the median slope between all pairs of samples, which single outliers do not move; or by
the peaks, of what goes up and down in teeth as long as a slope can be seen in."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from statistics import median

Points = Sequence[tuple[float, float]]


def slope(points: Points) -> float:
    """Theil and Sen's estimate."""
    slopes = [
        (after - before) / (x - w) for (w, before), (x, after) in combinations(points, 2) if x != w
    ]
    return median(slopes) if slopes else 0.0


def growth(points: Points) -> float:
    """What the trend added from the first sample to the last."""
    return slope(points) * (points[-1][0] - points[0][0]) if len(points) > 1 else 0.0


def is_flat(points: Points, share: float, or_by: float = 0.0) -> bool:
    """Whether the trend added no more than a share of the median, or no more than what does not matter anyhow."""
    return growth(points) <= max(share * median(value for _, value in points), or_by)


def peaks(points: Points) -> tuple[float, float]:
    """The most in the first half, and in the second."""
    middle = (points[0][0] + points[-1][0]) / 2
    return (
        max(value for x, value in points if x <= middle),
        max(value for x, value in points if x >= middle),
    )
