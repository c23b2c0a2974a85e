"""What a node says and how long it waits while PostgreSQL does not answer."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress

logger = logging.getLogger("headrace.node")

FIRST, LONGEST = 2.0, 10.0  # seconds


class Outage:
    """Known to all loops of a node, so that one line is logged when it begins and one when it is over."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._troubled: set[object] = set()

    def began(self, who: object, error: BaseException) -> None:
        if not self._troubled:
            logger.warning("node %s: trying again, because %s", self._node, _said(error))
        self._troubled.add(who)

    def ended(self, who: object) -> None:
        if who in self._troubled:
            self._troubled.discard(who)
            if not self._troubled:
                logger.warning("node %s: it works again", self._node)

    def forget(self, who: object) -> None:
        """It does not try any more."""
        self._troubled.discard(who)

    @property
    def is_on(self) -> bool:
        return bool(self._troubled)


class Patience:
    """Between the tries of one loop: two seconds, then longer and longer, never in step with others."""

    def __init__(self, outage: Outage, *, first: float = FIRST) -> None:
        self._outage = outage
        self._first = self._pause = first

    async def failed(self, error: BaseException, stop: asyncio.Event) -> None:
        """Wait before the next try; not when all is to stop."""
        self._outage.began(self, error)
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause * random.uniform(0.75, 1.25))

    def worked(self) -> None:
        self._pause = self._first
        self._outage.ended(self)

    def over(self) -> None:
        """There will be no more tries."""
        self._outage.forget(self)


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
