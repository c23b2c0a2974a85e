"""How much memory a worker has that has drained a great many events: as much as after the first tenth of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.cases.nodes import Workers
from bench.peers import OURS

PARTS = 10
GOAL = 10.0  # mebibytes more after all of them than after the first tenth


class Memory(msgspec.Struct, frozen=True):
    events: list[int]
    """So many by then."""
    mebibytes: list[float]

    @property
    def growth(self) -> float:
        return self.mebibytes[-1] - self.mebibytes[0]

    @property
    def met(self) -> bool:
        return self.growth <= GOAL


def measure(dsn: str, events: int, say: Callable[[str], object]) -> Memory | None:
    """None where there is no /proc to ask."""
    if not Path("/proc/self/status").exists():
        return None
    part = max(events // PARTS, 1)
    worker = Steady(dsn, OURS, 1)
    counts, sizes = [], []
    try:
        worker.start()
        for number in range(1, PARTS + 1):
            say(f"memory: {number * part:,} of {PARTS * part:,} events")
            worker.feed(part)
            counts.append(number * part)
            sizes.append(worker.mebibytes())
    finally:
        worker.close()
    return Memory(counts, sizes)


class Steady(Workers):
    """One worker that goes on from part to part."""

    def feed(self, events: int) -> None:
        super().feed(events)
        self.vacuum()

    def mebibytes(self) -> float:
        status = Path(f"/proc/{self._programs[0].pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
        return int(line.split()[1]) / 1024
