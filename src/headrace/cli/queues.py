"""`headrace queues`: the queues of a namespace."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

import typer
from rich.text import Text

from headrace.cli import options, times
from headrace.cli.asking import confirm
from headrace.cli.help import Group, described
from headrace.cli.options import Data, Dsn, Json, Namespace, Reason, Yes
from headrace.cli.progress import in_steps
from headrace.cli.settings import Backoff, Metadata, chosen
from headrace.cli.showing import (
    Column,
    Show,
    clean,
    count,
    listed,
    number,
    print_json,
    print_table,
    say,
    state,
)
from headrace.cli.source import opened
from headrace.model import Queue

queues = typer.Typer(
    cls=Group,
    help="Queues of a namespace: each gets every event that it takes. Without a command: list.",
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]
Taken = Annotated[
    list[str] | None,
    typer.Option(
        "--type",
        "-t",
        metavar="TYPE",
        help="Take events of this type, which may hold asterisks. Repeat for several; without: of all.",
        show_default=False,
    ),
]
TakenTags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        metavar="TAG",
        help="Take events with this tag. Repeat for several: any of them will do.",
        show_default=False,
    ),
]
MaxDepth = Annotated[
    int | None,
    typer.Option(
        "--max-queue-depth",
        metavar="NUMBER",
        min=1,
        help="Refuse what is published while so many wait.",
        show_default=False,
    ),
]
HighWatermark = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER",
        min=1,
        help="Tell publishers of pressure while so many wait.",
        show_default=False,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        metavar="NUMBER", min=1, help="Events that a claim gets at most.", show_default=False
    ),
]
Interval = Annotated[
    timedelta | None,
    typer.Option(
        "--processing-interval",
        parser=times.duration,
        metavar="TIME",
        help="How often an idle worker looks: 1s.",
        show_default=False,
    ),
]
Threshold = Annotated[
    int | None,
    typer.Option(
        "--persistence-threshold",
        metavar="NUMBER",
        min=1,
        help="Save the queue's state as soon as so many wait.",
        show_default=False,
    ),
]
RequireToken = Annotated[
    bool | None,
    typer.Option(
        "--require-lease-token/--no-lease-token",
        help="Whether a claim is ended and extended only with its lease token.",
        show_default=False,
    ),
]
What = Literal["ready", "delayed", "dead_letters"]

QUEUES = (
    Show(Column("queue", 0, 8), lambda one: one.name),
    Show(Column("state", 1), lambda one: _state(one)),
    Show(Column("depth", 1, right=True), lambda one: _depth(one)),
    Show(Column("takes", 2, 12), lambda one: _takes(one)),
    Show(Column("retries", 4, right=True), lambda one: number(one.max_retries)),
    Show(Column("limit", 3, right=True), lambda one: number(one.max_queue_depth)),
    Show(Column("watermark", 5, right=True), lambda one: number(one.high_watermark)),
    Show(Column("batch", 6, right=True), lambda one: number(one.batch_size)),
    Show(Column("created", 7), lambda one: times.exact(one.created_at)),
)


@described(
    queues,
    "list",
    examples="""
    headrace queues
    headrace queues list --namespace shop --json
    """,
)
def list_(
    json: Json = False, namespace: Namespace = "default", dsn: Dsn = None, data: Data = None
) -> None:
    """List the queues of a namespace, what they take and how deep they are."""
    with opened(dsn, data, namespace) as source:
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
    # It is counted to 10,000, or to the limit if that is more.
    bound = max(10_000, queue.max_queue_depth or 0)
    words = f"{queue.depth:,}" + ("+" if queue.depth >= bound else "")
    return words if queue.filling is None else f"{words} (filling)"


def _takes(queue: Queue) -> str:
    words = listed(queue.types, "everything")
    if queue.tags:
        words += f" with {'all' if queue.all_tags else 'any'} of {listed(queue.tags)}"
    return words


@described(
    queues,
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
    all_tags: Annotated[bool, typer.Option("--all-tags", help="All of the tags, not any.")] = False,
    since: Annotated[
        Any,
        typer.Option(
            parser=times.moment,
            metavar="TIME",
            help="Begin with what was published from this time on: 2026-03-01T12:00, or 2h ago: 2h.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            min=0,
            help="Begin after this event; 0: with the first that is kept.",
            show_default=False,
        ),
    ] = None,
    max_retries: options.MaxRetries = None,
    backoff: Backoff = None,
    max_queue_depth: MaxDepth = None,
    high_watermark: HighWatermark = None,
    batch_size: BatchSize = None,
    processing_interval: Interval = None,
    persistence_threshold: Threshold = None,
    require_lease_token: RequireToken = None,
    metadata: Metadata = None,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Make a queue that gets every event it takes from now on, or from a point of the past."""
    with opened(dsn, data, namespace) as source:
        new = source.create_queue(
            name,
            types=types,
            tags=tags,
            all_tags=all_tags,
            since=since,
            after=after,
            max_retries=max_retries,
            backoff=backoff,
            max_queue_depth=max_queue_depth,
            high_watermark=high_watermark,
            batch_size=batch_size,
            processing_interval=processing_interval,
            persistence_threshold=persistence_threshold,
            require_lease_token=require_lease_token,
            metadata=metadata,
        )
    say(f"{'Created' if new else 'It was there already'}: {clean(namespace)}/{clean(name)}")


@described(
    queues,
    "set",
    examples="""
    headrace queues set billing --max-retries 5 --backoff 1m
    headrace queues set billing --type 'order.*' --type 'refund.*'
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
            "--all-tags/--any-tag", help="All of the tags, or any of them.", show_default=False
        ),
    ] = None,
    takes: Annotated[
        bool | None,
        typer.Option("--takes/--takes-nothing", help="Switch it on or off.", show_default=False),
    ] = None,
    max_retries: options.MaxRetries = None,
    backoff: Backoff = None,
    max_queue_depth: MaxDepth = None,
    high_watermark: HighWatermark = None,
    batch_size: BatchSize = None,
    processing_interval: Interval = None,
    persistence_threshold: Threshold = None,
    require_lease_token: RequireToken = None,
    metadata: Metadata = None,
    default: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SETTING",
            help="Bring a default back, as in --default max-queue-depth. Repeat for several.",
            show_default=False,
        ),
    ] = None,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Change the settings of a queue that are named."""
    said = {
        "types": types or None,
        "tags": tags or None,
        "all_tags": all_tags,
        "takes": takes,
        "max_retries": max_retries,
        "backoff": backoff,
        "max_queue_depth": max_queue_depth,
        "high_watermark": high_watermark,
        "batch_size": batch_size,
        "processing_interval": processing_interval,
        "persistence_threshold": persistence_threshold,
        "require_lease_token": require_lease_token,
        "metadata": metadata,
    }
    settings = chosen(said, default)
    with opened(dsn, data, namespace) as source:
        source.change_queue(name, **settings)
    say(f"Changed: {clean(namespace)}/{clean(name)}")


@described(
    queues,
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
            "--with-deliveries", help="Also if something waits there or is dead: it is cancelled."
        ),
    ] = False,
    yes: Yes = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Remove a queue. (main cannot be removed, but switched off: set main --takes-nothing)"""
    with opened(dsn, data, namespace) as source:
        lost = ", and what waits or is dead there is cancelled" if with_deliveries else ""
        confirm(f"This removes the queue {namespace}/{name}{lost}", yes=yes)
        source.delete_queue(name, with_deliveries=with_deliveries)
    say(f"Removed: {clean(namespace)}/{clean(name)}")


@described(
    queues,
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
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Remove what waits in a queue, or its dead letters. What is in work stays."""
    with opened(dsn, data, namespace, name) as source:
        of = f" of the types {listed(types)}" if types else ""
        confirm(f"This removes what is {_waits(what)} in {namespace}/{name}{of}, for good", yes=yes)
        done = in_steps(
            "Removing",
            None,
            lambda progress: source.purge(what, types=types, reason=reason, progress=progress),
            "removed",
        )
    say(f"Removed: {count(done, 'event')}.")


def _waits(what: What) -> str:
    return "dead" if what == "dead_letters" else what
