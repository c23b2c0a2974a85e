"""Options that many commands have."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import times
from headrace.redaction import has_password

WHERE = "Where"


def _warned(dsn: str | None) -> str | None:
    if dsn is not None and has_password(dsn):
        typer.echo(
            "headrace: others on this machine can read a password that is given on the command line; "
            "give the address as HEADRACE_DSN, or the password in ~/.pgpass",
            err=True,
        )
    return dsn


Dsn = Annotated[
    str | None,
    typer.Option(
        metavar="DSN",
        help="PostgreSQL to use; else HEADRACE_DSN, DATABASE_URL, or an embedded one.",
        show_default=False,
        rich_help_panel=WHERE,
        callback=_warned,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of the embedded PostgreSQL; else HEADRACE_DATA, or .headrace here.",
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
        help="Only this queue; else all of the namespace.",
        show_default=False,
        rich_help_panel=WHERE,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="For programs: a JSON object a line.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why, for the log.", show_default=False)]

Types = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        "-t",
        metavar="TYPE",
        help="Only events of this type, which may hold asterisks. Repeat for several.",
        show_default=False,
    ),
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        help="Only events with this tag. Repeat for several: any of them will do.",
        show_default=False,
    ),
]
AllTags = Annotated[bool, typer.Option("--all-tags", help="All of the tags, not any of them.")]
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
    typer.Option(parser=times.duration, metavar="TIME", help="How far back to count: 90s, 5m, 1h."),
]
Limit = Annotated[int, typer.Option("--limit", metavar="NUMBER", min=1, help="How many at most.")]
Pooler = Annotated[
    bool,
    typer.Option("--pooler", help="There is a transaction pooler in front of PostgreSQL."),
]

# What an event is published with, by hand or by the clock.
Priority = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        help="0 is the most urgent, 5 the usual, 9 the least.",
        show_default=False,
    ),
]
MaxRetries = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER", min=0, help="Failures until an event is dead.", show_default=False
    ),
]
ForPeople = Annotated[
    str | None, typer.Option(metavar="TEXT", help="For people.", show_default=False)
]
