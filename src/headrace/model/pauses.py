"""The pauses between the tries of a loop: each is twice as long as the one before it, up to a
longest."""

from __future__ import annotations

import random


class Pauses:
    """`jitter` is the least and the most by which a pause is multiplied, so that many loops that
    began together do not try again together. `at_once`: the first try in a row comes without a
    pause. A connection that is lost says nothing about the next one: PostgreSQL is mostly there."""

    def __init__(
        self,
        first: float,
        longest: float,
        *,
        jitter: tuple[float, float] = (0.5, 1.0),
        at_once: bool = False,
    ) -> None:
        self._first = self._pause = min(first, longest)
        self._longest = longest
        self._jitter = jitter
        self._at_once = self._is_first = at_once

    def next(self) -> float:
        """Seconds until the next try."""
        if self._is_first:
            self._is_first = False
            return 0.0
        pause, self._pause = self._pause, min(2 * self._pause, self._longest)
        return pause * random.uniform(*self._jitter)

    def reset(self) -> None:
        """The last try worked: the next pause is the first again."""
        self._pause = self._first
        self._is_first = self._at_once


NO_JITTER = (1.0, 1.0)
"""For a loop whose pauses are added up, or that runs alone."""
