"""Reads the log of a namespace as it grows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import psycopg

from headrace import cursors, statements
from headrace.cli.failing import is_away, reason
from headrace.cli.showing import remark
from headrace.cli.source import Source, connected, queue_over
from headrace.model import LogPage
from headrace.running import run

PAGE = 500  # entries that are read at once
PAUSE, AWAY = 0.25, 1.0  # seconds between two looks, and while the database is away


class Follower:
    """Reads the log page by page, over a new connection when one is lost."""

    def __init__(
        self, where: Source, namespace: str, actions: Sequence[str] | None, after: str | None
    ) -> None:
        self._where, self._namespace, self._actions = where, namespace, actions
        self._after = None if after is None else cursors.read(after)
        self._mark: str | None = None
        self._end: int | None = None
        self._well = True

    @property
    def cursor(self) -> str:
        """Where to go on."""
        if self._mark is not None:
            return self._mark.partition(" ")[0]
        number, cursor = self._after or (0, None)
        return cursor or str(number)

    def begin(self, queue: str | None) -> None:
        """Find out where the log ends now, and that there is such a log."""
        with closing(connected(self._where)) as connection:
            mark, self._end = run(connection, statements.log_now(), prepare=False)
            if self._after is None:
                self._mark = mark
            queue_over(connection, self._namespace, queue or "main").queue()

    def pages(self, *, follow: bool) -> Iterator[LogPage]:
        while True:
            try:
                with closing(connected(self._where)) as connection:
                    # After a crash or a promotion it may end sooner than it did.
                    now = run(connection, statements.log_end(), prepare=False)
                    end = now if self._end is None else min(self._end, now)
                    source = queue_over(connection, self._namespace, "main")
                    while True:
                        page = source.log_since(
                            self.cursor, limit=PAGE, actions=self._actions, mark=self._mark
                        )
                        self._back(page)
                        yield page
                        self._mark = page.mark
                        if not follow and page.read_to >= end:
                            return
                        if len(page.entries) < PAGE:
                            time.sleep(PAUSE)
            except psycopg.Error as error:
                if not (follow and is_away(error)):
                    raise
                self._away(error)

    def _away(self, error: psycopg.Error) -> None:
        if self._well:
            remark(f"PostgreSQL is away ({reason(error)}); trying again.", style="yellow")
        self._well = False
        time.sleep(AWAY)

    def _back(self, page: LogPage) -> None:
        if not self._well:
            remark("PostgreSQL is back.", style="yellow")
        self._well = True
        if page.rewound_to is not None:
            remark(
                "A standby was promoted, or a backup restored: what comes after entry "
                f"{page.rewound_to} may be shown again.",
                style="yellow",
            )
