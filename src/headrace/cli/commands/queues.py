"""`headrace queues`: the queues of a namespace."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.text import Text

from headrace.cli.commands.queue_settings import Settings
from headrace.cli.source import InNamespace
from headrace.cli.terminal import options, settings, times
from headrace.cli.terminal.command import Group
from headrace.cli.terminal.confirm import confirm
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.limits import GROUPS, facts
from headrace.cli.terminal.options import Json, Reason, Yes
from headrace.cli.terminal.progress import in_steps
from headrace.cli.terminal.table import Column, Show, print_facts, print_table
from headrace.cli.terminal.text import count, listed, number, say, state
from headrace.model import Queue

queues = Group(
    "queues",
    "Queues of a namespace: each gets every event that matches it. Without a command: list.",
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
What = Literal["ready", "delayed", "dead_letters"]

Taken = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        "-t",
        metavar="TYPE",
        help="Take events of this type; * is a wildcard. Repeat for several; default: all types.",
        show_default=False,
    ),
]
TakenTags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        help="Take events with this tag. Repeat for several: any of them matches.",
        show_default=False,
    ),
]
QUEUES = (
    Show(Column("queue", 0, 8), lambda one: one.name),
    Show(Column("state", 1), lambda one: _state(one)),
    Show(Column("depth", 1, right=True), lambda one: _depth(one)),
    Show(Column("takes", 2, 12), lambda one: _takes(one)),
    Show(Column("retries", 4, right=True), lambda one: number(one.max_retries)),
    Show(Column("max depth", 3, right=True), lambda one: number(one.max_queue_depth)),
    Show(Column("watermark", 5, right=True), lambda one: number(one.high_watermark)),
    Show(Column("batch", 6, right=True), lambda one: number(one.batch_size)),
    Show(Column("created", 7), lambda one: times.exact(one.created_at)),
)


@queues.command(
    "list",
    examples="""
    headrace queues
    headrace queues list --namespace shop --json
    """,
)
def list_(json: Json = False, *, where: InNamespace) -> None:
    """List the queues of a namespace, the events they take and their depths."""
    with where.opened() as source:
        found = source.queues()
    if json:
        print_json(found)
    else:
        print_table(QUEUES, found)


def _state(queue: Queue) -> Text:
    if queue.takes:
        return state(queue.state)
    return Text("off" if queue.state == "active" else f"off, {queue.state}", style="dim")


def _depth(queue: Queue) -> str:
    # The engine counts to 10,000, or to the maximum depth if that is more.
    bound = max(10_000, queue.max_queue_depth or 0)
    words = f"{queue.depth:,}" + ("+" if queue.depth >= bound else "")
    return words if queue.filling is None else f"{words} (filling)"


def _takes(queue: Queue) -> str:
    words = listed(queue.types, "everything")
    if queue.tags:
        words += f" with {'all' if queue.all_tags else 'any'} of {listed(queue.tags)}"
    return words


@queues.command(
    examples="""
    headrace queues show billing
    headrace queues show main --json
    """,
)
def show(name: Name, json: Json = False, *, where: InNamespace) -> None:
    """Show a queue: its settings, and which groups wait for a limit."""
    with where.opened() as source:
        one = source.queue(name)
        groups = source.limits(name)
    if json:
        print_json([{**msgspec.structs.asdict(one), "groups": groups}])
        return
    shown = [(show.column.name, show.cell(one)) for show in QUEUES]
    print_facts([*shown, *facts(one)])
    if groups:
        say("")
        print_table(GROUPS, groups)


@queues.command(
    examples="""
    headrace queues create billing --type 'order.*'
    headrace queues create audit --after 0
    headrace queues create mails --type email.requested --max-queue-depth 100000 --backoff 30s
    """,
)
def create(
    name: Name,
    types: Taken = None,
    tags: TakenTags = None,
    all_tags: options.AllTags = False,
    since: Annotated[
        Any,
        typer.Option(
            parser=times.moment,
            metavar="TIME",
            help="Begin with events published at this time: 2026-03-01T12:00, or 2h ago: 2h.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            min=0,
            help="Begin after this event; 0: with the oldest that is kept.",
            show_default=False,
        ),
    ] = None,
    *,
    given: Settings,
    config: settings.Config = None,
    where: InNamespace,
) -> None:
    """Create a queue that gets every event it takes from now on, or from a point in the past."""
    with where.opened() as source:
        new = source.create_queue(
            name,
            types=types,
            tags=tags,
            all_tags=all_tags,
            since=since,
            after=after,
            config=config,
            **asdict(given),
        )
    say(f"{'Created' if new else 'Already exists'}: {where.path(name)}")


@queues.command(
    "set",
    examples="""
    headrace queues set billing --max-retries 5 --backoff 1m
    headrace queues set billing --type 'order.*' --type 'refund.*'
    headrace queues set billing --order oldest
    headrace queues set billing --limit 'tag tenant: at-once=5' --limit 'queue rate=100/1m'
    headrace queues set billing --default limits
    headrace queues set main --takes-nothing
    headrace queues set billing --default max-queue-depth
    """,
)
def set_(
    name: Name,
    types: Taken = None,
    tags: TakenTags = None,
    all_tags: Annotated[
        bool | None,
        typer.Option(
            "--all-tags/--any-tag", help="Require all of the tags, or any.", show_default=False
        ),
    ] = None,
    takes: Annotated[
        bool | None,
        typer.Option(
            "--takes/--takes-nothing", help="Switch the queue on or off.", show_default=False
        ),
    ] = None,
    *,
    given: Settings,
    config: settings.Config = None,
    default: settings.Default = None,
    where: InNamespace,
) -> None:
    """Change the named settings of a queue."""
    takings = {"types": types or None, "tags": tags or None, "all_tags": all_tags, "takes": takes}
    changes = settings.chosen({**takings, **asdict(given)}, default, config)
    with where.opened() as source:
        source.change_queue(name, **changes)
    say(f"Changed: {where.path(name)}")


@queues.command(
    examples="""
    headrace queues remove audit
    headrace queues remove audit --with-deliveries --yes
    """,
)
def remove(
    name: Name,
    with_deliveries: Annotated[
        bool,
        typer.Option(
            "--with-deliveries", help="Also if it has waiting events or dead letters; cancel them."
        ),
    ] = False,
    yes: Yes = False,
    *,
    where: InNamespace,
) -> None:
    """Remove a queue. (main cannot be removed, only switched off: set main --takes-nothing)"""
    with where.opened() as source:
        lost = " and cancels its waiting events and dead letters" if with_deliveries else ""
        confirm(f"This removes the queue {where.namespace}/{name}{lost}", yes=yes)
        source.delete_queue(name, with_deliveries=with_deliveries)
    say(f"Removed: {where.path(name)}")


@queues.command(
    examples="""
    headrace queues purge mails ready
    headrace queues purge mails delayed --type 'email.*' --reason 'sent by hand' --yes
    """,
)
def purge(
    name: Name,
    what: Annotated[
        What, typer.Argument(metavar="WHAT", help="What to remove: ready, delayed or dead_letters.")
    ],
    types: options.Types = None,
    reason: Reason = "",
    yes: Yes = False,
    *,
    where: InNamespace,
) -> None:
    """Remove ready or delayed events, or dead letters, from a queue. Events in progress stay."""
    with where.opened(name) as source:
        noun = "dead letters" if what == "dead_letters" else f"{what} events"
        of = f" of the types {listed(types)}" if types else ""
        confirm(f"This permanently removes all {noun}{of} from {where.namespace}/{name}", yes=yes)
        done = in_steps(
            "Removing",
            None,
            lambda progress: source.purge(what, types=types, reason=reason, progress=progress),
            "removed",
        )
    say(f"Removed: {count(done, 'event')}.")
