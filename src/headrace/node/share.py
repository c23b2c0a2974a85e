"""What the services of one node share: its slots, its word to stop, and how its handlers publish."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from headrace.async_client import AsyncEventQueue
from headrace.node.claim.lane import Lane
from headrace.node.claim.slots import Slots
from headrace.node.run.abandoned import Abandonment
from headrace.node.settings import Settings

logger = logging.getLogger("headrace.node")


class Share:
    """A node has one service for each database. However many, it runs so many handlers at once as
    its settings say."""

    def __init__(self, settings: Settings, publisher: AsyncEventQueue | None = None) -> None:
        self.publisher = publisher
        """The client of several shards, by which handlers publish without a connection; None: it is
        the service's own."""
        self.slots = Slots(settings.concurrency)
        self.transactional = Slots(settings.connections, within=self.slots)
        self.exhausted = asyncio.Event()
        """Set when so many handlers were abandoned that only a new process helps."""
        self.abandoned: Abandonment[Any] = Abandonment(settings.concurrency, self._changed)
        self.watchers: list[Callable[[], None]] = []
        """Called when there is one more handler that was abandoned, or one less."""
        self._lanes: dict[Lane, Slots] = {}

    def of(self, lane: Lane) -> Slots:
        """The slots of a lane, the same for all services."""
        within = self.transactional if lane.each else self.slots
        if not lane.concurrency:
            return within
        if lane not in self._lanes:
            self._lanes[lane] = Slots(lane.concurrency, within)
        return self._lanes[lane]

    def _changed(self) -> None:
        for watcher in self.watchers:
            watcher()
        if self.abandoned.is_full and not self.exhausted.is_set():
            self.exhausted.set()
            logger.critical(
                "%d handlers did not end after their timeouts: the node claims fewer and "
                "fewer events, and its process should be restarted",
                len(self.abandoned),
            )
