"""Options that several commands have."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.terminal import times
from headrace.telemetry.redact import has_password

WHERE = "Where"


def _warn_of_password(dsns: list[str] | None) -> list[str] | None:
    if any(map(has_password, dsns or ())):
        typer.echo(
            "headrace: other users of this machine can read a password on the command line; "
            "set HEADRACE_DSN, or put the password in ~/.pgpass",
            err=True,
        )
    return dsns or None


Dsn = Annotated[
    list[str] | None,
    typer.Option(
        "--dsn",
        metavar="DSN",
        help="PostgreSQL to use; default: HEADRACE_DSN, DATABASE_URL, or an embedded one. Repeat for "
        "each of several shards.",
        show_default=False,
        rich_help_panel=WHERE,
        callback=_warn_of_password,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the embedded PostgreSQL; default: HEADRACE_DATA, or ./.headrace.",
        show_default=False,
        rich_help_panel=WHERE,
    ),
]
Namespace = Annotated[
    str,
    typer.Option("--namespace", "-n", metavar="NAME", help="Namespace.", rich_help_panel=WHERE),
]
Queue = Annotated[
    str, typer.Option("--queue", "-q", metavar="NAME", help="Queue.", rich_help_panel=WHERE)
]
AnyQueue = Annotated[
    str | None,
    typer.Option(
        "--queue",
        "-q",
        metavar="NAME",
        help="Only this queue; default: all queues of the namespace.",
        show_default=False,
        rich_help_panel=WHERE,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Reason = Annotated[
    str, typer.Option(metavar="TEXT", help="Reason, for the log.", show_default=False)
]
Everywhere = Annotated[bool, typer.Option("--everywhere", help="All namespaces.")]

Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        "-t",
        metavar="TYPE",
        help="Only events of this type; * is a wildcard. Repeat for several.",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        help="Only events with this tag. Repeat for several: any of them matches.",
        show_default=False,
    ),
]
AllTags = Annotated[
    bool, typer.Option("--all-tags", help="Require all of the tags instead of any.")
]
Since = Annotated[
    datetime | None,
    typer.Option(
        parser=times.moment,
        metavar="TIME",
        help="From this time on: 2026-03-01T12:00, or how long ago: 2h.",
        show_default=False,
    ),
]
Until = Annotated[
    datetime | None,
    typer.Option(
        parser=times.moment,
        metavar="TIME",
        help="Before this time: 2026-03-01T12:00, or how long ago: 2h.",
        show_default=False,
    ),
]
Period = Annotated[
    timedelta,
    typer.Option(parser=times.duration, metavar="TIME", help="Period to count: 90s, 5m, 1h."),
]
Limit = Annotated[
    int, typer.Option("--limit", metavar="NUMBER", min=1, help="Maximum number of results.")
]
Before = Annotated[
    int | None,
    typer.Option(metavar="ID", help="Next page: only older than this id.", show_default=False),
]
Payload = Annotated[bool, typer.Option("--payload", help="Include payloads (with --json).")]
Rate = Annotated[
    float | None,
    typer.Option(
        metavar="NUMBER",
        min=0.001,
        help="Rate limit (events per second); default: none.",
        show_default=False,
    ),
]
Pooler = Annotated[
    bool,
    typer.Option("--pooler", help="PostgreSQL is behind a transaction pooler."),
]

# Fields of an event that is published by a command or by a schedule.
Priority = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="Priority: 0 is most urgent, 5 the default, 9 least urgent.",
        show_default=False,
    ),
]
MaxRetries = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        min=0,
        help="Failures before an event becomes a dead letter.",
        show_default=False,
    ),
]
EventTags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="TAG", help="Tag. Repeat for several.", show_default=False),
]
Key = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Ordering key: events with the same key are delivered one at a time, in order.",
        show_default=False,
    ),
]
Title = Annotated[
    str | None, typer.Option(metavar="TEXT", help="Human-readable title.", show_default=False)
]
Description = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Human-readable description.", show_default=False),
]
