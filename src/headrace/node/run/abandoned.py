"""Handlers that did not end after their timeout: how many there are.

Python cannot end a thread, nor a task that swallows its cancellation. The node abandons such a
handler: its event fails, and its slot, its lease and its connection are free for other events. The
handler may go on; it can change nothing any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

FEWEST = 10  # handlers that a node may have abandoned, however few it runs at once


class Abandoned(BaseException):
    """Raised in the node's own code around a handler that has ended after it was abandoned."""


class Abandonment(Generic[T]):
    """The abandoned handlers of a node that still run. Calls `changed` when there is one more or
    one less."""

    def __init__(self, concurrency: int, changed: Callable[[], None]) -> None:
        self.most = max(FEWEST, concurrency)
        self._changed = changed
        self._runs: set[T] = set()

    def __len__(self) -> int:
        return len(self._runs)

    @property
    def is_full(self) -> bool:
        """Whether one more would have to keep its slot: threads and memory are limited."""
        return len(self._runs) >= self.most

    def add(self, run: T) -> None:
        self._runs.add(run)
        self._changed()

    def remove(self, run: T) -> None:
        self._runs.discard(run)
        self._changed()
