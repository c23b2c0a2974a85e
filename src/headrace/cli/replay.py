"""`headrace replay`, `checkpoint`, `checkpoints`: how far a queue has come, and its events once more."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.text import Text

from headrace.cli import options, times
from headrace.cli.failing import Interrupted, WrongUse
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Json, Namespace, Queue
from headrace.cli.progress import Bar, stepping
from headrace.cli.showing import (
    Column,
    Show,
    clean,
    count,
    json_line,
    number,
    out,
    print_json,
    print_table,
    remark,
    say,
    write_line,
)
from headrace.cli.source import connected, opened, prepared, queue_over
from headrace.model import Event

PANEL = "Queues"
STEP = 10  # events between two movements of the bar

CHECKPOINTS = (
    Show(Column("at", 0), lambda one: times.exact(one.created_at)),
    Show(Column("ago", 2, right=True), lambda one: times.ago(one.created_at)),
    Show(Column("checkpoint", 1, right=True), lambda one: one.checkpoint_id or "–"),
    Show(Column("events", 1, right=True), lambda one: number(one.event_count)),
)


def register(app: typer.Typer) -> None:
    described(
        app,
        panel="Events",
        examples="""
        headrace replay --since 1d --type 'order.*'
        headrace replay --queue billing --from-checkpoint 4711 --json > events.jsonl
        headrace replay --since 2h --type 'order.*' --to staging --rate 50
        headrace replay --since 2h --lines | headrace publish --lines - --dsn postgresql://elsewhere
        """,
    )(replay)
    described(
        app,
        panel=PANEL,
        examples="""
        headrace checkpoint
        headrace checkpoint --queue billing --json
        """,
    )(checkpoint)
    described(
        app,
        panel=PANEL,
        examples="""
        headrace checkpoints
        headrace checkpoints --queue billing --limit 5
        """,
    )(checkpoints)


def replay(
    from_checkpoint: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            min=0,
            help="Only what comes after this checkpoint, or after the event of this id.",
            show_default=False,
        ),
    ] = None,
    since: options.Since = None,
    types: options.Types = None,
    lines: Annotated[
        bool,
        typer.Option(
            "--lines", help="As `headrace publish --lines` takes them, to publish them again."
        ),
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="NAMESPACE",
            help="Publish them again, to the queues of this namespace that take them, instead of printing them.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            min=0.001,
            help="With --to: so many a second; else all at once.",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Read the events that a queue takes once more, in their order, whatever became of them.

    They are printed, or with --to published again: as new events, at once, in batches of a hundred, each committed on its own. It
    ends with the last one that was there when it began, and skips none: it waits for a transaction that may still
    commit one before that."""
    if json and lines:
        raise WrongUse("--json or --lines, not both")
    if to is None and rate is not None:
        raise WrongUse("--rate is for --to: how many are published again in a second")
    if to is not None:
        if json or lines:
            raise WrongUse("with --to they are not printed: leave --json and --lines out")
        from headrace.cli.republishing import Again

        with prepared(dsn, data) as where, connected(where) as connection:
            again = Again(queue_over(connection, to, "main"), rate, from_checkpoint)
            events = queue_over(connection, namespace, queue).replay(
                from_checkpoint=from_checkpoint, since=since, types=types
            )
            again.publish_all(events)
        say(f"Published again: {count(again.done, 'event')}.")
        return
    last, done = from_checkpoint, 0
    with opened(dsn, data, namespace, queue) as source:
        try:
            with Bar("Reading", None, shown=not out().is_terminal) as bar:
                for event in source.replay(
                    from_checkpoint=from_checkpoint, since=since, types=types
                ):
                    with stepping(bar):  # a line is written whole
                        _print(event, json=json, lines=lines)
                        last, done = event.id, done + 1
                    if done % STEP == 0:
                        bar.at(done)
        except KeyboardInterrupt:
            after = "" if last is None else f"; go on with --from-checkpoint {last}"
            raise Interrupted(f"Interrupted: {count(done, 'event')} read{after}.") from None
    remark(f"{count(done, 'event')}.")


def _print(event: Event, *, json: bool, lines: bool) -> None:
    if lines:
        from headrace.cli.republishing import arguments

        write_line(json_line(arguments(event)))
        return
    if json:
        write_line(json_line(event))
        return
    line = Text(f"{times.exact(event.created_at)} ", style="dim")
    line.append(f"{event.id:>8} ", style="not dim")
    line.append(clean(event.type), style="not dim bold")
    line.append(f"  {clean(msgspec.json.encode(event.payload).decode())}")
    if out().is_terminal:
        line.truncate(out().width, overflow="ellipsis")
    out().print(line, no_wrap=True, crop=False)


def checkpoint(
    json: Json = False,
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Save how far a queue has come: everything at or below its checkpoint is finished."""
    with opened(dsn, data, namespace, queue) as source:
        made = source.checkpoint()
    if json:
        print_json([made])
        return
    where = f"{clean(namespace)}/{clean(queue)}"
    say(f"Checkpoint of {where}: {made.checkpoint_id or 'nothing is finished yet'}")
    if made.lag:
        more = "" if made.lag_is_exact else "more than "
        remark(f"{more}{count(made.lag, 'event')} after it.")
    if made.reason:
        remark(clean(made.reason))


def checkpoints(
    limit: options.Limit = 20,
    json: Json = False,
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """List how far a queue had come at which time, the newest first."""
    with opened(dsn, data, namespace, queue) as source:
        found = source.checkpoints(limit=limit)
    if json:
        print_json(found)
    elif found:
        print_table(CHECKPOINTS, found)
    else:
        say(f"There is no checkpoint of {clean(namespace)}/{clean(queue)} yet.")
