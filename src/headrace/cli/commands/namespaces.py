"""`headrace namespaces`: isolated sets of events, queues, schedules and nodes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

import typer

from headrace.cli.source import InDatabase
from headrace.cli.terminal import settings, times
from headrace.cli.terminal.command import Group
from headrace.cli.terminal.confirm import confirm
from headrace.cli.terminal.json import json_line, print_json
from headrace.cli.terminal.options import Json, Yes
from headrace.cli.terminal.table import Column, Show, print_table
from headrace.cli.terminal.text import clean, number, say

namespaces = Group(
    "namespaces",
    "Namespaces: isolated sets of events, queues, schedules and nodes. Without a command: list.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the namespace.")]
Unhandled = Annotated[
    Literal["keep", "dead_letter"] | None,
    typer.Option(
        metavar="POLICY",
        help="Events that no live node handles: keep them, or dead_letter them.",
        show_default=False,
    ),
]
UnhandledAfter = Annotated[
    timedelta | None,
    typer.Option(
        parser=times.duration,
        metavar="TIME",
        help="How long no live node must have handled them: 10m.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Settings:
    """The settings of a namespace, under the names that the client has for them."""

    unhandled: Unhandled = None
    unhandled_after: UnhandledAfter = None
    metadata: settings.Metadata = None


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


@namespaces.command(
    "list",
    examples="""
    headrace namespaces
    headrace namespaces --json | jq -r .name
    """,
)
def list_(json: Json = False, *, where: InDatabase) -> None:
    """List the namespaces of the database."""
    with where.opened() as source:
        found = source.namespaces()
    if json:
        print_json(found)
    else:
        print_table(NAMESPACES, found)


def _unhandled(one: Any) -> str:
    if one.unhandled == "keep":
        return "kept"
    return f"dead-lettered after {times.length(one.unhandled_after)}"


@namespaces.command(
    examples="""
    headrace namespaces create shop
    headrace namespaces create shop --metadata '{"team": "orders"}'
    """,
)
def create(name: Name, metadata: settings.Metadata = None, *, where: InDatabase) -> None:
    """Create a namespace; an existing one stays unchanged."""
    with where.opened() as source:
        source.create_namespace(name, metadata=metadata)
    say(f"Namespace {clean(name)} is ready")


@namespaces.command(
    "set",
    examples="""
    headrace namespaces set shop --unhandled dead_letter --unhandled-after 10m
    headrace namespaces set shop --default unhandled
    """,
)
def set_(
    name: Name, *, given: Settings, default: settings.Default = None, where: InDatabase
) -> None:
    """Change the named settings of a namespace."""
    changes = settings.chosen(asdict(given), default)
    with where.opened() as source:
        source.change_namespace(name, **changes)
    say(f"Changed: {clean(name)}")


@namespaces.command(
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
            "--with-deliveries", help="Also if it has unfinished events or dead letters; lose them."
        ),
    ] = False,
    yes: Yes = False,
    *,
    where: InDatabase,
) -> None:
    """Remove a namespace with its queues, schedules, events and log."""
    with where.opened() as source:
        lost = ", and loses its unfinished events and dead letters" if with_deliveries else ""
        confirm(f"This removes the namespace {name} with its queues, events and log{lost}", yes=yes)
        source.delete_namespace(name, with_deliveries=with_deliveries)
    say(f"Removed: {clean(name)}")
