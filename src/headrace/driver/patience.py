"""Logs an outage of PostgreSQL once, and tells loops how long to wait meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress

from headrace.model.pauses import Pauses

logger = logging.getLogger("headrace.node")

FIRST, LONGEST = 0.05, 1.0  # seconds


class Outage:
    """All loops, threads and connections of a node share it, so that one line is logged when an
    outage begins and one when it is over."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._troubled: set[object] = set()
        self._lock = threading.Lock()

    def began(self, who: object, error: BaseException) -> None:
        with self._lock:
            if not self._troubled:
                logger.warning("node %s: trying again, because %s", self._node, _said(error))
            self._troubled.add(who)

    def ended(self, who: object) -> None:
        with self._lock:
            if who in self._troubled:
                self._troubled.discard(who)
                if not self._troubled:
                    logger.warning("node %s: it works again", self._node)

    def connected(self, who: object, error: BaseException | None) -> None:
        """A pool has made a connection, or tried to."""
        if error is None:
            self.ended(who)
        else:
            self.began(who, error)

    def forget(self, who: object) -> None:
        """A loop does not try any more."""
        with self._lock:
            self._troubled.discard(who)

    @property
    def is_on(self) -> bool:
        return bool(self._troubled)


class Patience:
    """Between the tries of one loop: at once, then longer and longer, never in step with others.
    What works at the second or third try is no outage: one connection was lost, or several."""

    def __init__(self, outage: Outage) -> None:
        self._outage = outage
        self._pauses = Pauses(FIRST, LONGEST, at_once=True)
        self._failures = 0

    def failed(self, error: BaseException) -> float:
        """Seconds to wait before the next try."""
        self._failures += 1
        if self._failures > 2:
            self._outage.began(self, error)
        return self._pauses.next()

    async def wait(self, error: BaseException, stop: asyncio.Event) -> None:
        """Wait before the next try; not when all is to stop."""
        await wait_until(stop, self.failed(error))

    def worked(self) -> None:
        self._failures = 0
        self._pauses.reset()
        self._outage.ended(self)

    def over(self) -> None:
        """There will be no more tries."""
        self._outage.forget(self)


async def wait_until(stop: asyncio.Event, seconds: float) -> None:
    """Wait for so long, and no longer when all is to stop."""
    with suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), seconds)


def _said(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
