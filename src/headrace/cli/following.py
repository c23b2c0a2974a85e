"""Reads the log of a namespace as it grows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import psycopg

from headrace import statements
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
        self, where: Source, namespace: str, actions: Sequence[str] | None, after: int | None
    ) -> None:
        self._where, self._namespace, self._actions = where, namespace, actions
        self._after = after
        self._mark: str | None = None
        self._end = 0
        self._well = True

    @property
    def after(self) -> int:
        return self._after or 0

    def begin(self, queue: str | None) -> None:
        """Find out where the log ends now, and that there is such a log."""
        with closing(connected(self._where)) as connection:
            self._end = run(connection, statements.log_end(), prepare=False)
            self._after = self._end if self._after is None else self._after
            queue_over(connection, self._namespace, queue or "main").queue()

    def pages(self, *, follow: bool) -> Iterator[LogPage]:
        while True:
            try:
                with closing(connected(self._where)) as connection:
                    source = queue_over(connection, self._namespace, "main")
                    while True:
                        page = source.log_since(
                            self.after, limit=PAGE, actions=self._actions, mark=self._mark
                        )
                        self._back()
                        yield page
                        self._after, self._mark = page.after, page.mark
                        if not follow and self.after >= self._end:
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
        self._well, self._mark = False, None
        time.sleep(AWAY)

    def _back(self) -> None:
        if not self._well:
            remark("PostgreSQL is back.", style="yellow")
        self._well = True
