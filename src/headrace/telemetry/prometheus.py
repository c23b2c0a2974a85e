"""Figures in the text format of Prometheus, which is simple enough to be written without a library."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Literal, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels: TypeAlias = Mapping[str, str]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True, slots=True)
class Sample:
    value: float
    labels: Labels
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Samples of one name; a counter's ends in `_total`, and it says its unit."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: Iterable[Sample]


class Histogram:
    """Counts values by upper bounds. The last count is of the values above all bounds."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Count a value, so many times."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def by_bound(self) -> dict[float, int]:
        return dict(zip((*self.bounds, inf), self.counts, strict=True))

    def samples(self, labels: Labels) -> list[Sample]:
        return histogram(self.by_bound(), self.total, labels)


def histogram(counts: Mapping[float, int], total: float, labels: Labels) -> list[Sample]:
    """The samples of a histogram: how many there were up to each bound and above the one before, infinity being the
    last bound, and what all of them add up to."""
    bounds = sorted(counts)
    sums = list(accumulate(counts[bound] for bound in bounds))
    return [
        *(
            Sample(count, {**labels, "le": _number(bound)}, "_bucket")
            for bound, count in zip(bounds, sums, strict=True)
        ),
        Sample(total, labels, "_sum"),
        Sample(sums[-1], labels, "_count"),
    ]


def text(families: Iterable[Family]) -> str:
    """The answer to a scrape."""
    return "".join(_family(family) for family in families)


def _family(family: Family) -> str:
    name, said = family.name, family.help.replace("\\", r"\\").replace("\n", r"\n")
    lines = [f"# HELP {name} {said}", f"# TYPE {name} {family.kind}"]
    lines += [
        f"{name}{one.suffix}{_labels(one.labels)} {_number(one.value)}" for one in family.samples
    ]
    return "\n".join(lines) + "\n"


def _labels(labels: Labels) -> str:
    pairs = [f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()]
    return f"{{{','.join(pairs)}}}" if pairs else ""


def _number(value: float) -> str:
    if value == inf:
        return "+Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
