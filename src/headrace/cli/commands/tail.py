"""`headrace tail`: the log of a namespace as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args

import typer
from rich.text import Text

from headrace.cli.source import InNamespace, Source, Where, connected, queue_over
from headrace.cli.terminal import options, times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.errors import Interrupted, is_away, reason
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.text import clean, last_line, out, remark, state
from headrace.model import Action, LogEntry, LogPage
from headrace.model.patterns import check_pattern, matches

if TYPE_CHECKING:
    import psycopg

    Choice: TypeAlias = Action
else:  # typer accepts a list of these, and none of literals
    Choice = StrEnum("Choice", {one: one for one in get_args(Action)})

PAGE = 500  # entries that are read at once
PAUSE, AWAY = 0.25, 1.0  # seconds between two polls, and between two attempts to connect

Actions = Annotated[
    list[Choice] | None,
    typer.Option(
        "--action",
        "-a",
        metavar="ACTION",
        help=f"Only these: {', '.join(get_args(Action))}. Repeat for several.",
        show_default=False,
        case_sensitive=False,
    ),
]
InQueue = Annotated[
    str | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="NAME",
        help="Only entries of this queue; entries about publishing are always shown.",
        show_default=False,
        rich_help_panel=options.WHERE,
    ),
]
After = Annotated[
    str | None,
    typer.Option(
        metavar="ENTRY",
        help="Begin after this entry of the log; 0: with the oldest. Default: with the next entry.",
        show_default=False,
    ),
]
NoFollow = Annotated[bool, typer.Option("--no-follow", help="Stop at the current end of the log.")]


@command(
    examples="""
    headrace tail
    headrace tail --type 'order.*' --action FAILED --action DEAD_LETTERED
    headrace tail --queue billing --namespace shop
    headrace tail --after 0 --no-follow --json > log.jsonl
    """,
)
def tail(
    types: options.Types = None,
    action: Actions = None,
    queue: InQueue = None,
    after: After = None,
    no_follow: NoFollow = False,
    json: Json = False,
    *,
    where: InNamespace,
) -> None:
    """Follow the log live: events published, claimed, finished. Ctrl-C stops it.

    It skips no entry, even if the connection to the database is lost and restored. At the end it
    prints the entry to continue after. When a standby was promoted meanwhile, it goes back a little
    and says so: entries may be shown twice."""
    wanted = _filter(types, queue)
    actions = [str(one) for one in action or ()] or None
    with _follower(where, actions, after) as follower:
        follower.begin(queue)
        if after is None and not no_follow:
            remark(f"Following {clean(where.namespace)} from now on. Ctrl-C stops it.")
        try:
            for page in follower.pages(follow=not no_follow):
                _print([entry for entry in page.entries if wanted(entry)], json=json)
        except KeyboardInterrupt:
            raise Interrupted(f"Continue with: --after {follower.cursor}") from None


@contextmanager
def _follower(
    where: Where, actions: Sequence[str] | None, after: str | None
) -> Iterator[Follower | ShardsFollower]:
    if where.shards():
        with where.opened("main") as client:
            yield ShardsFollower(client, actions, after)
    else:
        with where.prepared() as source:
            yield Follower(source, where.namespace, actions, after)


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
    """Time, action and event, then the rest. A line that is too long for the terminal is cut."""
    line = Text(f"{entry.created_at.astimezone():%H:%M:%S} ", style="dim")
    line += state(entry.action.ljust(13))
    line.append(f"{entry.event_id:>8} ")
    line.append(clean(entry.type or "–"), style="bold")
    rest = [
        None if entry.queue in (None, "main") else f"queue {clean(entry.queue)}",
        None if entry.attempt in (None, 1) else f"attempt {entry.attempt}",
        None if entry.worker_id is None else f"by {clean(entry.worker_id)}",
        None
        if entry.execution_time_ms is None
        else f"took {times.milliseconds(entry.execution_time_ms)}",
    ]
    line.append("".join(f"  {one}" for one in rest if one), style="dim")
    if entry.error_message:
        line.append(f"  {clean(last_line(entry.error_message))}", style="red")
    console = out()
    if console.is_terminal:
        line.truncate(console.width, overflow="ellipsis")
    console.print(line, no_wrap=True, crop=False)


class Follower:
    """Reads the log page by page, and connects again when the connection is lost."""

    def __init__(
        self, where: Source, namespace: str, actions: Sequence[str] | None, after: str | None
    ) -> None:
        self._where, self._namespace, self._actions = where, namespace, actions
        self._after = None if after is None else _read_cursor(after)
        self._mark: str | None = None
        self._end: int | None = None
        self._well = True

    @property
    def cursor(self) -> str:
        """The entry to continue after."""
        if self._mark is not None:
            return self._mark.partition(" ")[0]
        number, cursor = self._after or (0, None)
        return cursor or str(number)

    def begin(self, queue: str | None) -> None:
        """Find the current end of the log, and check that the namespace and the queue exist."""
        from headrace.driver.run import run
        from headrace.engine import log

        with closing(connected(self._where)) as connection:
            mark, self._end = run(connection, log.log_now(), prepare=False)
            if self._after is None:
                self._mark = mark
            queue_over(connection, self._namespace, queue or "main").queue()

    def pages(self, *, follow: bool) -> Iterator[LogPage]:
        import psycopg

        from headrace.driver.run import run
        from headrace.engine import log

        while True:
            try:
                with closing(connected(self._where)) as connection:
                    # After a crash or a promotion the log may end earlier than before.
                    now = run(connection, log.log_end(), prepare=False)
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
            remark(f"PostgreSQL cannot be reached ({reason(error)}); retrying.", style="yellow")
        self._well = False
        time.sleep(AWAY)

    def _back(self, page: LogPage) -> None:
        if not self._well:
            remark("PostgreSQL is reachable again.", style="yellow")
        self._well = True
        if page.rewound_to is not None:
            remark(
                "A standby was promoted or a backup restored: entries after "
                f"{page.rewound_to} may be shown again.",
                style="yellow",
            )


class ShardsFollower:
    """Reads the log of all shards. A shard that does not answer is heard of when it does."""

    def __init__(self, client: Any, actions: Sequence[str] | None, after: str | None) -> None:
        self._client, self._actions = client, actions
        self._is_new = after is None
        self.cursor = after or ""
        self._mark: str | None = None
        self._end = ""
        self._missing: tuple[str, ...] = ()

    def begin(self, queue: str | None) -> None:
        """Find the current end of the log, and check that the namespace and the queue exist."""
        from headrace.client import beside

        mark = self._client.log_now()
        self._end = mark.partition(" ")[0]
        if self._is_new:
            self.cursor, self._mark = self._end, mark
        beside(self._client, self._client.verbs.namespace, queue or "main").queue()

    def pages(self, *, follow: bool) -> Iterator[LogPage]:
        from headrace.engine.shard_pages import log_is_past
        from headrace.errors import Unavailable

        while True:
            try:
                page = self._client.log_since(
                    self.cursor, limit=PAGE, actions=self._actions, mark=self._mark
                )
            except Unavailable:
                if not follow:
                    raise
                self._tell(self._client.missing)
                time.sleep(AWAY)
                continue
            self._tell(page.missing)
            if page.rewound_to is not None:
                remark(
                    "A standby was promoted or a backup restored: entries may be shown again.",
                    style="yellow",
                )
            yield page
            self.cursor, self._mark = page.cursor, page.mark
            if not follow and log_is_past(self.cursor, self._end):
                return
            if len(page.entries) < PAGE:
                time.sleep(PAUSE)

    def _tell(self, missing: tuple[str, ...]) -> None:
        for one in missing:
            if one not in self._missing:
                remark(f"No answer: {clean(one)}; retrying.", style="yellow")
        for one in self._missing:
            if one not in missing:
                remark(f"{clean(one)} answers again.", style="yellow")
        self._missing = missing


def _read_cursor(text: str) -> tuple[int, str | None]:
    from headrace.engine import cursors

    return cursors.read(text)
