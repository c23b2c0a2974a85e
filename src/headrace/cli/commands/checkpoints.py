"""`headrace checkpoint`, `checkpoints`: the progress of a queue."""

from __future__ import annotations

from headrace.cli.source import Where
from headrace.cli.terminal import options, times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.table import Column, Show, print_table
from headrace.cli.terminal.text import clean, count, number, remark, say

CHECKPOINTS = (
    Show(Column("at", 0), lambda one: times.exact(one.created_at)),
    Show(Column("ago", 2, right=True), lambda one: times.ago(one.created_at)),
    Show(Column("checkpoint", 1, right=True), lambda one: one.checkpoint_id or "–"),
    Show(Column("events", 1, right=True), lambda one: number(one.event_count)),
)


@command(
    examples="""
    headrace checkpoint
    headrace checkpoint --queue billing --json
    """,
)
def checkpoint(json: Json = False, *, where: Where) -> None:
    """Save the progress of a queue: all events up to its checkpoint are finished."""
    with where.opened() as source:
        made = source.checkpoint()
    if json:
        print_json([made])
        return
    say(f"Checkpoint of {where.path()}: {made.checkpoint_id or 'no event is finished yet'}")
    if made.lag:
        more = "" if made.lag_is_exact else "more than "
        remark(f"{more}{count(made.lag, 'event')} after it.")
    if made.reason:
        remark(clean(made.reason))


@command(
    examples="""
    headrace checkpoints
    headrace checkpoints --queue billing --limit 5
    """,
)
def checkpoints(limit: options.Limit = 20, json: Json = False, *, where: Where) -> None:
    """List the checkpoints of a queue, newest first."""
    with where.opened() as source:
        found = source.checkpoints(limit=limit)
    if json:
        print_json(found)
    elif found:
        print_table(CHECKPOINTS, found)
    else:
        say(f"No checkpoints of {where.path()} yet.")
