"""How many handlers run at once: of a node, and of a lane that has a limit of its own."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Waiting(Protocol):
    def start(self) -> None:
        """There may be a slot now."""


class Slots:
    """A consumer that finds no slot free is called when there may be one, each in its turn."""

    def __init__(self, size: int, within: Slots | None = None) -> None:
        self.size = size
        self._within = within
        self._free = size
        self._waiting: deque[Waiting] = deque()

    @property
    def free(self) -> int:
        return self._free if self._within is None else min(self._free, self._within.free)

    @property
    def taken(self) -> int:
        return self.size - self._free

    @property
    def are_wanted(self) -> bool:
        """Whether a consumer waits for a slot that another has."""
        return bool(self._waiting) or (self._within is not None and self._within.are_wanted)

    def take(self, who: Waiting) -> bool:
        if self._free <= 0:
            self.wait(who)
            return False
        if self._within is not None and not self._within.take(who):
            return False
        self._free -= 1
        return True

    def wait(self, who: Waiting) -> None:
        """Be called where they are scarce: there a slot is given back."""
        if self._free > 0 and self._within is not None:
            self._within.wait(who)
        elif who not in self._waiting:
            self._waiting.append(who)

    def give(self) -> None:
        self._free += 1
        if self._within is not None:
            self._within.give()
        for _ in range(len(self._waiting)):
            if self._free > 0 and self._waiting:
                self._waiting.popleft().start()
