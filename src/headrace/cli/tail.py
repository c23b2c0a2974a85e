"""`headrace tail`: the log of a namespace as it happens."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, TypeAlias, get_args

import typer

from headrace.cli import options
from headrace.cli.failing import Interrupted
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Json, Namespace
from headrace.cli.show import last_line, took
from headrace.cli.showing import clean, out, print_json, remark, state
from headrace.cli.source import prepared
from headrace.model import Action, LogEntry
from headrace.patterns import check_pattern, matches

if TYPE_CHECKING:
    Choice: TypeAlias = Action
else:  # typer knows a list of these, and none of literals
    Choice = StrEnum("Choice", {one: one for one in get_args(Action)})


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
        list[Choice] | None,
        typer.Option(
            "--action",
            "-a",
            metavar="ACTION",
            help=f"Only these: {', '.join(get_args(Action))}. Repeat for several.",
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
        str | None,
        typer.Option(
            metavar="ENTRY",
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
    on. When a standby was promoted meanwhile, it goes back a little and says so: entries may be shown twice."""
    from headrace.cli.following import Follower

    wanted = _filter(types, queue)
    with prepared(dsn, data) as where:
        follower = Follower(where, namespace, [str(one) for one in action or ()] or None, after)
        follower.begin(queue)
        if after is None and not no_follow:
            remark(f"Following {clean(namespace)} from now on; Ctrl-C ends it.")
        try:
            for page in follower.pages(follow=not no_follow):
                _print([entry for entry in page.entries if wanted(entry)], json=json)
        except KeyboardInterrupt:
            raise Interrupted(f"Go on with: --after {follower.cursor}") from None


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
