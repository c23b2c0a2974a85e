"""The newest entries of the logs that somebody follows, each log read once for all of them."""

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

from headrace import statements
from headrace.errors import HeadraceError
from headrace.model import LogEntry, LogPage, read_server
from headrace.server.bulkheads import charge_namespace
from headrace.server.directory import Directory
from headrace.statements import LogWait

PAGE = 500  # entries that are read at once
KEPT = 2000  # entries that a feed has at hand
SAID = 1000  # characters of an error that are told; the event's log has all of it
STUCK = 3.0  # seconds after which it is told what the log waits for, and told again
PAUSE, AWAY = 0.25, 1.0  # seconds between two looks, and while the database is away

logger = logging.getLogger("headrace.server")


class Feed:
    """The newest entries of a namespace's log, read once for all who follow it. Who is further behind reads for
    himself until he has caught up; so nothing is kept for anybody who is slow."""

    def __init__(self, directory: Directory, namespace: str, now: tuple[str, int]) -> None:
        self._directory = directory
        self.namespace = namespace
        self._mark, self.begin = now
        self.after = self.begin  # what lies between the two is at hand
        # Where a follower that was told all of it resumes.
        self.cursor = self._mark.partition(" ")[0]
        self._server = read_server(self._mark)
        self.over = False
        self.wait: LogWait | None = None
        """The transaction that the log has been waiting for, for a while."""
        self._read_to = -1
        self._stuck_at: float | None = None
        self._entries: deque[LogEntry] = deque()
        self.written: dict[int, bytes] = {}
        """Entries as they are told, by their numbers: once for all who follow."""
        self.turn = asyncio.Lock()
        """Of many who follow, one at a time is told something: so others are answered in between."""
        self._news: set[asyncio.Event] = set()
        self._reading = asyncio.create_task(self._read(), name=f"the log of {namespace}")

    async def _read(self) -> None:
        try:
            await self._read_on()
        except HeadraceError as error:  # the namespace has been deleted, or a backup was restored
            logger.info("the log of %s is not followed any more: %s", self.namespace, error)
        finally:
            self.over = True
            self._tell()

    async def _read_on(self) -> None:
        well = True
        charge_namespace(self.namespace)
        client = self._directory.of(self.namespace, "main", lane="look")
        while True:
            try:
                page = await client.log_since(limit=PAGE, mark=self._mark)
            except (psycopg.Error, PoolTimeout) as error:
                if well:
                    logger.warning("the log of %s cannot be read: %s", self.namespace, error)
                well = False
                await asyncio.sleep(AWAY)
                continue
            well = True
            if page.server != self._server:
                # Numbers that were read to may be given to other entries now, and each follower has a cursor of its own to go
                # back by: they are cut off here, and come again.
                logger.info(
                    "PostgreSQL was started anew: the log of %s is begun again", self.namespace
                )
                return
            self._keep(page)
            await self._find_wait(page)
            if len(page.entries) < PAGE:
                await asyncio.sleep(PAUSE)

    async def _find_wait(self, page: LogPage) -> None:
        """An entry is told when no transaction can commit one below it any more. One that stays open, whoever's it
        is, keeps all of them waiting, who should know why."""
        now = asyncio.get_running_loop().time()
        if page.read_to != self._read_to or not page.awaits_others:
            self._read_to, self._stuck_at, self.wait = page.read_to, now, None
        elif self._stuck_at is not None and now >= self._stuck_at + STUCK:
            self._stuck_at = now
            with suppress(psycopg.Error, PoolTimeout):
                self.wait = await self._directory.ask(statements.log_waits(page.mark), lane="look")
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
        """Some of what comes after an entry; None: not all of that is at hand."""
        if after < self.begin:
            return None
        first = bisect_right(self._entries, after, key=lambda entry: entry.id)
        return [self._entries[n] for n in range(first, min(first + PAGE, len(self._entries)))]

    def subscribe(self, news: asyncio.Event) -> None:
        """It is set whenever there is more at hand."""
        self._news.add(news)

    def unsubscribe(self, news: asyncio.Event) -> None:
        self._news.discard(news)

    @property
    def is_followed(self) -> bool:
        return bool(self._news)

    def stop(self) -> None:
        self._reading.cancel()


class Feeds:
    """The feeds that are followed, and by how many."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._feeds: dict[str, Feed] = {}
        self.followers = 0

    @contextmanager
    def following(
        self, namespace: str, now: tuple[str, int], news: asyncio.Event
    ) -> Iterator[Feed]:
        """The feed of a namespace, for as long as somebody follows it. A new one begins where the log ends now."""
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
