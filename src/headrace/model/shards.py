"""What several shards have told together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


class Merged(list[T]):
    """A list of what several shards have told. It is a list in every other way."""

    def __init__(
        self, items: Iterable[T] = (), missing: tuple[str, ...] = (), cursor: str | None = None
    ) -> None:
        super().__init__(items)
        self.missing = missing
        """The shards that did not answer: what they have is not in the list."""
        self.cursor = cursor
        """Where to page on, in the place of an id (`before`); None: this is all."""
