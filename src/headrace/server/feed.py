"""Feeds: the newest entries of a log that clients follow, read once for all of them."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import msgspec
import psycopg
from psycopg_pool import PoolTimeout

from headrace.engine import log
from headrace.engine.log import LogWait
from headrace.errors import HeadraceError
from headrace.model import LogEntry, LogPage, read_server
from headrace.server.bulkheads import charged_to_namespace
from headrace.server.clients import Directory

PAGE = 500  # entries that are read at once
KEPT = 2000  # entries that a feed keeps
SAID = 1000  # characters of an error in the stream; the log of the event has all of it
STUCK = 3.0  # seconds after which followers learn what the log waits for, again and again
PAUSE, AWAY = 0.25, 1.0  # seconds between two looks, and while the database is away

logger = logging.getLogger("headrace.server")


class Feed:
    """The newest entries of the log of a namespace, read once for all followers. A follower that is
    further behind reads by itself until it has caught up; so a slow one costs no memory."""

    def __init__(self, directory: Directory, namespace: str, now: tuple[str, int]) -> None:
        self._directory = directory
        self.namespace = namespace
        self._mark, self.begin = now
        self.after = self.begin  # the feed has the entries between the two
        # The position at which a follower that got all entries resumes.
        self.cursor = self._mark.partition(" ")[0]
        self._server = read_server(self._mark)
        self.over = False
        self.wait: LogWait | None = None
        """The transaction that has been holding the log for a while."""
        self._read_to = -1
        self._stuck_at: float | None = None
        self._entries: deque[LogEntry] = deque()
        self.written: dict[int, bytes] = {}
        """Encoded entries, by number: once for all followers."""
        self.turn = asyncio.Lock()
        """Of many followers, one at a time encodes entries: so requests are answered in between."""
        self._news: set[asyncio.Event] = set()
        self._reading = asyncio.create_task(self._read(), name=f"the log of {namespace}")

    async def _read(self) -> None:
        try:
            with charged_to_namespace(self.namespace):
                await self._read_on()
        except HeadraceError as error:  # the namespace has been deleted, or a backup was restored
            logger.info("stopped following the log of %s: %s", self.namespace, error)
        finally:
            self.over = True
            self._tell()

    async def _read_on(self) -> None:
        failures = 0
        client = self._directory.of(self.namespace, "main", lane="look")
        while True:
            try:
                page = await client.log_since(limit=PAGE, mark=self._mark)
            except (psycopg.Error, PoolTimeout) as error:
                failures += 1
                if failures == 2:  # else a new connection does
                    logger.warning("cannot read the log of %s: %s", self.namespace, error)
                await asyncio.sleep(AWAY if failures > 1 else 0)
                continue
            failures = 0
            if page.server != self._server:
                # Other entries may have the numbers that were read. Each follower has a cursor of
                # its own to go back by: they are disconnected here, and reconnect.
                logger.info(
                    "PostgreSQL was restarted: followers of the log of %s reconnect", self.namespace
                )
                return
            self._keep(page)
            await self._find_wait(page)
            if len(page.entries) < PAGE:
                await asyncio.sleep(PAUSE)

    async def _find_wait(self, page: LogPage) -> None:
        """An entry is sent when no transaction can commit one below it any more. A transaction that
        stays open holds all followers up, so they learn which one it is."""
        now = asyncio.get_running_loop().time()
        if page.read_to != self._read_to or not page.awaits_others:
            self._read_to, self._stuck_at, self.wait = page.read_to, now, None
        elif self._stuck_at is not None and now >= self._stuck_at + STUCK:
            self._stuck_at = now
            with suppress(psycopg.Error, PoolTimeout):
                self.wait = await self._directory.ask(log.log_waits(page.mark), lane="look")
                self._tell()

    def _keep(self, page: LogPage) -> None:
        self._entries.extend(map(_shortened, page.entries))
        self._mark, self.after, self.cursor = page.mark, page.read_to, page.cursor
        while len(self._entries) > KEPT:
            self.begin = self._entries.popleft().id
            self.written.pop(self.begin, None)
        if page.entries:
            self._tell()

    def _tell(self) -> None:
        for news in self._news:
            news.set()

    def since(self, after: int) -> list[LogEntry] | None:
        """A page of the entries after a number; None: the feed no longer has all of them."""
        if after < self.begin:
            return None
        first = bisect_right(self._entries, after, key=lambda entry: entry.id)
        return [self._entries[n] for n in range(first, min(first + PAGE, len(self._entries)))]

    def subscribe(self, news: asyncio.Event) -> None:
        """The event is set whenever there are new entries."""
        self._news.add(news)

    def unsubscribe(self, news: asyncio.Event) -> None:
        self._news.discard(news)

    @property
    def is_followed(self) -> bool:
        return bool(self._news)

    def stop(self) -> None:
        self._reading.cancel()


class Feeds:
    """The feeds in use, and the number of their followers."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._feeds: dict[str, Feed] = {}
        self.followers = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A follower that reads by itself."""
        self.followers += 1
        try:
            yield
        finally:
            self.followers -= 1

    @contextmanager
    def following(
        self, namespace: str, now: tuple[str, int], news: asyncio.Event
    ) -> Iterator[Feed]:
        """The feed of a namespace, for as long as it has followers. A new one begins at the
        current end of the log."""
        feed = self._feeds.get(namespace)
        if feed is None or feed.over:
            feed = self._feeds[namespace] = Feed(self._directory, namespace, now)
        feed.subscribe(news)
        self.followers += 1
        try:
            yield feed
        finally:
            self.followers -= 1
            feed.unsubscribe(news)
            if not feed.is_followed:
                feed.stop()
                if self._feeds.get(namespace) is feed:
                    del self._feeds[namespace]


def _shortened(entry: LogEntry) -> LogEntry:
    error = entry.error_message
    if error is None or len(error) <= SAID:
        return entry
    return msgspec.structs.replace(entry, error_message=error[:SAID])
