"""`headrace namespaces`: isolated sets of events, queues, schedules and nodes."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import typer

from headrace.cli import times
from headrace.cli.asking import confirm
from headrace.cli.help import Group, described
from headrace.cli.options import Data, Dsn, Json, Yes
from headrace.cli.settings import Metadata, chosen
from headrace.cli.showing import (
    Column,
    Show,
    clean,
    json_line,
    number,
    print_json,
    print_table,
    say,
)
from headrace.cli.source import opened

namespaces = typer.Typer(
    cls=Group,
    help="Namespaces: isolated sets of events, queues, schedules and nodes. Without a command: list.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The namespace.")]
Unhandled = Literal["keep", "dead_letter"]

NAMESPACES = (
    Show(Column("namespace", 0, 10), lambda one: one.name),
    Show(Column("queues", 1, right=True), lambda one: number(one.queues)),
    Show(Column("unhandled", 2), lambda one: _unhandled(one)),
    Show(Column("created", 3), lambda one: times.exact(one.created_at)),
    Show(
        Column("metadata", 4, 10),
        lambda one: json_line(dict(one.metadata)) if one.metadata else "–",
    ),
)


@described(
    namespaces,
    "list",
    examples="""
    headrace namespaces
    headrace namespaces --json | jq -r .name
    """,
)
def list_(json: Json = False, dsn: Dsn = None, data: Data = None) -> None:
    """List the namespaces of the database."""
    with opened(dsn, data) as source:
        found = source.namespaces()
    if json:
        print_json(found)
    else:
        print_table(NAMESPACES, found)


def _unhandled(one: Any) -> str:
    if one.unhandled == "keep":
        return "kept"
    return f"dead-lettered after {times.length(one.unhandled_after)}"


@described(
    namespaces,
    examples="""
    headrace namespaces create shop
    headrace namespaces create shop --metadata '{"team": "orders"}'
    """,
)
def create(name: Name, metadata: Metadata = None, dsn: Dsn = None, data: Data = None) -> None:
    """Make a namespace; one that is there stays as it is."""
    with opened(dsn, data) as source:
        source.create_namespace(name, metadata=metadata)
    say(f"There is a namespace: {clean(name)}")


@described(
    namespaces,
    "set",
    examples="""
    headrace namespaces set shop --unhandled dead_letter --unhandled-after 10m
    headrace namespaces set shop --default unhandled
    """,
)
def set_(
    name: Name,
    unhandled: Annotated[
        Unhandled | None,
        typer.Option(
            metavar="WHAT",
            help="What becomes of events that no live node handles: keep, or dead_letter.",
            show_default=False,
        ),
    ] = None,
    unhandled_after: Annotated[
        timedelta | None,
        typer.Option(
            parser=times.duration,
            metavar="TIME",
            help="For how long nobody must have handled them: 10m.",
            show_default=False,
        ),
    ] = None,
    metadata: Metadata = None,
    default: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="Bring a default back: unhandled, unhandled-after, metadata. Repeat for several.",
            show_default=False,
        ),
    ] = None,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Change the settings of a namespace that are named."""
    said = {
        "unhandled": unhandled,
        "unhandled_after": unhandled_after,
        "metadata": metadata,
    }
    settings = chosen(said, default)
    with opened(dsn, data) as source:
        source.change_namespace(name, **settings)
    say(f"Changed: {clean(name)}")


@described(
    namespaces,
    examples="""
    headrace namespaces remove scratch
    headrace namespaces remove scratch --with-deliveries --yes
    """,
)
def remove(
    name: Name,
    with_deliveries: Annotated[
        bool,
        typer.Option(
            "--with-deliveries", help="Also if something waits there or is dead: it is lost."
        ),
    ] = False,
    yes: Yes = False,
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Remove a namespace with its queues, schedules, events and log."""
    with opened(dsn, data) as source:
        lost = ", and what is not finished or dead there is lost" if with_deliveries else ""
        confirm(f"This removes the namespace {name} with its queues, events and log{lost}", yes=yes)
        source.delete_namespace(name, with_deliveries=with_deliveries)
    say(f"Removed: {clean(name)}")
