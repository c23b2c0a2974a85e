"""`headrace tail`: the log of a namespace as it happens."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from enum import StrEnum
from typing import Annotated

import psycopg
import typer

from headrace import statements
from headrace.cli import options
from headrace.cli.events import last_line, took
from headrace.cli.failing import Interrupted, is_away, reason
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Json, Namespace
from headrace.cli.showing import clean, out, print_json, remark, state
from headrace.cli.source import Source, connected, prepared, queue_over
from headrace.model import LogEntry, LogPage
from headrace.patterns import check_pattern, matches
from headrace.running import run

PAGE = 500  # entries that are read at once
PAUSE, AWAY = 0.25, 1.0  # seconds between two looks, and while the database is away


class Action(StrEnum):
    """What the log tells of."""

    EMITTED = "EMITTED"
    PICKED = "PICKED"
    STARTED = "STARTED"
    COMPLETED = "COMPLETED"
    COMPLETED_WITH_ERRORS = "COMPLETED_WITH_ERRORS"
    FAILED = "FAILED"
    RELEASED = "RELEASED"
    ABANDONED = "ABANDONED"
    RESET = "RESET"
    CANCELLED = "CANCELLED"
    DEAD_LETTERED = "DEAD_LETTERED"
    REDRIVEN = "REDRIVEN"


def register(app: typer.Typer) -> None:
    described(
        app,
        panel="Events",
        examples="""
        headrace tail
        headrace tail --type 'order.*' --action FAILED --action DEAD_LETTERED
        headrace tail --queue billing --namespace shop
        headrace tail --after 0 --no-follow --json > log.jsonl
        """,
    )(tail)


def tail(
    types: options.Types = None,
    action: Annotated[
        list[Action] | None,
        typer.Option(
            "--action",
            "-a",
            metavar="ACTION",
            help="Only these: EMITTED, PICKED, STARTED, COMPLETED, COMPLETED_WITH_ERRORS, FAILED, RELEASED, ABANDONED, "
            "RESET, CANCELLED, DEAD_LETTERED, REDRIVEN. Repeat for several.",
            show_default=False,
            case_sensitive=False,
        ),
    ] = None,
    queue: Annotated[
        str | None,
        typer.Option(
            "--queue",
            "-q",
            metavar="NAME",
            help="Only what happens in this queue; what is published is shown all the same.",
            show_default=False,
            rich_help_panel=options.WHERE,
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            metavar="ENTRY",
            min=0,
            help="Begin after this entry of the log, 0 being before the first; else with what happens from now on.",
            show_default=False,
        ),
    ] = None,
    no_follow: Annotated[
        bool, typer.Option("--no-follow", help="End where the log ends now.")
    ] = False,
    json: Json = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Follow the log live: what is published, claimed, finished, as it happens. Ctrl-C ends it.

    Nothing is skipped, also if the database goes away and comes back. In the end it says after which entry to go
    on."""
    wanted = _filter(types, queue)
    with prepared(dsn, data) as where:
        follower = Follower(where, namespace, [one.value for one in action or ()] or None, after)
        follower.begin(queue)
        if after is None and not no_follow:
            remark(f"Following {clean(namespace)} from now on; Ctrl-C ends it.")
        try:
            for page in follower.pages(follow=not no_follow):
                _print([entry for entry in page.entries if wanted(entry)], json=json)
        except KeyboardInterrupt:
            raise Interrupted(f"Go on with: --after {follower.after}") from None


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


def _filter(types: list[str] | None, queue: str | None) -> Callable[[LogEntry], bool]:
    patterns = [check_pattern(one) for one in types or ()]

    def wanted(entry: LogEntry) -> bool:
        return (queue is None or entry.queue in (None, queue)) and (
            not patterns or any(matches(one, entry.type or "") for one in patterns)
        )

    return wanted


def _print(entries: list[LogEntry], *, json: bool) -> None:
    if json:
        print_json(entries)
    else:
        for entry in entries:
            _print_line(entry)
    out().file.flush()


def _print_line(entry: LogEntry) -> None:
    """Time, action, event; then what else there is. A line that is too long for the terminal is cut."""
    line = state(entry.action.ljust(13))
    line = type(line)(f"{entry.created_at.astimezone():%H:%M:%S} ", style="dim") + line
    line.append(f"{entry.event_id:>8} ")
    line.append(clean(entry.type or "–"), style="bold")
    rest = [
        None if entry.queue in (None, "main") else f"queue {clean(entry.queue)}",
        None if entry.attempt in (None, 1) else f"attempt {entry.attempt}",
        None if entry.worker_id is None else f"by {clean(entry.worker_id)}",
        None if entry.execution_time_ms is None else f"took {took(entry.execution_time_ms)}",
    ]
    line.append("".join(f"  {one}" for one in rest if one), style="dim")
    if entry.error_message:
        line.append(f"  {clean(last_line(entry.error_message))}", style="red")
    console = out()
    if console.is_terminal:
        line.truncate(console.width, overflow="ellipsis")
    console.print(line, no_wrap=True, crop=False)
