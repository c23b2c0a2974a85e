"""How long things took, and how much was said: what is reported besides the accounts, and, where there is a bound, held
to it."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.laboratory.accounting import Accounts, Start, starts_of
from tests.laboratory.house import House

ABANDONED = """
select m.event, m.attempt, extract(epoch from o.at)::float8
from headrace.outcomes o cross join lateral unnest(o.events, o.attempts) as m(event, attempt)
where o.action = 'ABANDONED'
"""
LONG = 10.0  # seconds: of an absence that says how much is logged in a minute
MOST_LINES = 5  # of one process while PostgreSQL is away once, besides those about single events


class Bounds(NamedTuple):
    """What is promised of a dead worker's events: when they are claimable, and when an idle worker has begun them. The
    others may be busy, and take events that were under way when a worker died one at a time."""

    free: float
    begun: float
    clock_is_right: bool = True


class Recovery(NamedTuple):
    """Seconds since its node was killed or frozen."""

    free: float
    """until an event could be claimed again"""
    begun: float
    """until it was begun again, anywhere"""


class Absence(NamedTuple):
    """Of PostgreSQL: how long, and how many lines each process logged meanwhile."""

    seconds: float
    lines: dict[str, int]


class Disturbances:
    """What the laboratory did to whom, and when."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.strikes: dict[str, list[float]] = defaultdict(list)
        """By the name of who was killed or frozen."""
        self.absences: list[Absence] = []

    def struck(self, name: str) -> None:
        self.strikes[name].append(time.monotonic())

    @contextmanager
    def absence(self) -> Iterator[None]:
        began, before = time.monotonic(), self._lines()
        yield
        said = {name: lines - before.get(name, 0) for name, lines in self._lines().items()}
        self.absences.append(Absence(time.monotonic() - began, said))

    def _lines(self) -> dict[str, int]:
        logs = {file.stem: file.read_bytes().splitlines() for file in self._folder.glob("*.log")}
        return {name: sum(map(_is_talk, lines)) for name, lines in logs.items()}


def _is_talk(line: bytes) -> bool:
    """Not about an event, and not what `headrace up` must say: that its PostgreSQL has ended, and runs again."""
    return b'"event_id"' not in line and b"the PostgreSQL in " not in line


def measure(
    accounts: Accounts, house: House, folder: Path, disturbances: Disturbances, bounds: Bounds
) -> None:
    starts = {file.stem: starts_of(file) for file in folder.glob("*.notes")}
    offset = time.time() - time.monotonic()
    abandoned = {(event, attempt): at - offset for event, attempt, at in house.sql(ABANDONED)}
    found = list(recoveries(starts, disturbances.strikes, abandoned))
    if found and bounds.clock_is_right:
        free = sorted(one.free for one in found)
        accounts.figures |= {
            **spread("claimable again after", free),
            "lease + tick, s": bounds.free,
            "claimable later than that": sum(one > bounds.free for one in free),
        }
    if found:
        begun = sorted(one.begun for one in found)
        accounts.figures |= {
            **spread("begun again after", begun),
            "lease + tick + poll, s": bounds.begun,
            "begun later than that": sum(one > bounds.begun for one in begun),
        }
    if disturbances.absences:
        hold_to_the_bound(accounts, disturbances.absences)


def hold_to_the_bound(accounts: Accounts, absences: list[Absence]) -> None:
    longest = max(absences, key=lambda one: one.seconds)
    most = max((max(one.lines.values(), default=0) for one in absences), default=0)
    accounts.figures |= {
        "longest absence of PostgreSQL, s": round(longest.seconds, 1),
        "most lines logged by a process in one absence": most,
    }
    if longest.seconds >= LONG:
        pace = max(longest.lines.values(), default=0) / longest.seconds * 60
        accounts.figures["most lines logged by a process a minute, in the longest"] = round(pace, 1)
    accounts.must_not_be(
        "processes that talked too much while PostgreSQL was away",
        {(name, n) for one in absences for name, n in one.lines.items() if n > MOST_LINES},
    )


def spread(name: str, times: list[float]) -> dict[str, float]:
    return {
        f"{name}, median, s": round(times[len(times) // 2], 2),
        f"{name}, p99, s": round(times[math.ceil(len(times) * 0.99) - 1], 2),
        f"{name}, longest, s": round(times[-1], 2),
    }


def recoveries(
    starts: dict[str, list[Start]],
    strikes: dict[str, list[float]],
    abandoned: dict[tuple[int, int], float],
) -> Iterator[Recovery]:
    """Of every attempt that had begun when its node was killed or frozen, and that was taken from it then: what a node had lost
    before, to a network that swallows, is no matter of its death."""
    begun = {(one.event, one.attempt): one.at for its in starts.values() for one in its}
    for node, its in starts.items():
        ends = sorted([*strikes.get(node, ()), *(s.at for s in its if s.kind == "poison")])
        for one in its:
            free = abandoned.get((one.event, one.attempt))
            struck = next((at for at in ends if at >= one.at), None)
            again = begun.get((one.event, one.attempt + 1))
            if free is None or struck is None or again is None:
                continue
            if struck <= free:
                yield Recovery(free - struck, again - struck)
