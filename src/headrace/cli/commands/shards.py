"""`headrace shards`: the homes of keys, and their moves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.source import over_shards
from headrace.cli.source import shards as named_shards
from headrace.cli.terminal import times
from headrace.cli.terminal.command import Group
from headrace.cli.terminal.errors import WrongUse
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Dsn, Json
from headrace.cli.terminal.table import Column, Show, print_table
from headrace.cli.terminal.text import clean, count, number, remark, say

if TYPE_CHECKING:
    from headrace.client import ShardedQueue
    from headrace.model.shards import Left, Moved

shards = Group(
    "shards",
    "Shards, and which keys have their home on each. Name all shards: repeat --dsn, or set "
    "HEADRACE_DSN, one per line. Without a command: list.",
)

Slots = Annotated[
    str,
    typer.Option(
        "--slots", metavar="SLOTS", help="Slots, 0 to 1023: 0-99,512.", show_default=False
    ),
]
To = Annotated[
    int, typer.Option("--to", metavar="SHARD", help="The shard to move to.", show_default=False)
]
Timeout = Annotated[
    timedelta | None,
    typer.Option(
        parser=times.duration,
        metavar="TIME",
        help="Maximum wait for the previous home: 10m. Repeat the command to continue.",
        show_default=False,
    ),
]

SHARDS = (
    Show(Column("shard", 0, right=True), lambda one: str(one.number)),
    Show(Column("server", 0, 10), lambda one: one.server),
    Show(Column("state", 1), lambda one: "answers" if one.answers else "does not answer"),
    Show(Column("slots", 1, right=True), lambda one: number(one.slots)),
    Show(Column("arriving", 2, right=True), lambda one: number(one.arriving)),
)


@contextmanager
def opened(dsns: list[str] | None) -> Iterator[ShardedQueue]:
    """A client of all shards that are named."""
    named = named_shards(dsns, None)
    if named is None:
        raise WrongUse("name every shard: --dsn A --dsn B, or HEADRACE_DSN, one per line")
    with over_shards(named, "default", "main") as client:
        yield client


@shards.command(
    "list", examples="headrace shards --dsn postgresql://a/shop --dsn postgresql://b/shop"
)
def list_(dsn: Dsn = None, json: Json = False) -> None:
    """List the shards, with the number of key slots (of 1,024) that have their home on each. Events
    of an arriving slot are stored, and wait until the previous home has none left."""
    with opened(dsn) as client:
        found = client.states()
    if json:
        print_json(found)
    else:
        print_table(SHARDS, found)


@shards.command(
    examples="""
    headrace shards spread --dsn postgresql://a/shop --dsn postgresql://b/shop
    headrace shards spread --timeout 1m
    """,
)
def spread(dsn: Dsn = None, timeout: Timeout = None) -> None:
    """Spread the key slots evenly over the shards, with as few moves as possible."""
    with opened(dsn) as client:
        _report(client.spread_slots(timeout=timeout, progress=_progress))


@shards.command(
    examples="headrace shards settle --dsn postgresql://a/shop --dsn postgresql://b/shop"
)
def settle(dsn: Dsn = None) -> None:
    """Bring all shards to the namespaces, queues, settings and tokens of shard 0, and divide the
    bounds of limits among them: after a shard was added, and when the doctor says that they differ.
    Queues that shard 0 does not have stay as they are."""
    with opened(dsn) as client:
        done = client.settle()
    for one in done:
        say(f"{clean(one)}.")
    if not done:
        say("Nothing to do: all shards have the same settings.")


@shards.command(
    examples="""
    headrace shards move --slots 0-99,512 --to 2 --dsn postgresql://a/shop --dsn postgresql://b/shop
    """,
)
def move(slots: Slots, to: To, dsn: Dsn = None, timeout: Timeout = None) -> None:
    """Move key slots to a shard. The shard stores events with these keys at once, and delivers them
    when the previous home has no ready, held, retrying or delayed delivery of them left. Dead
    letters stay where they are. Repeat the command to continue an interrupted move."""
    with opened(dsn) as client:
        _report(client.move_slots(_slots(slots), to, timeout=timeout, progress=_progress))


def _slots(text: str) -> list[int]:
    try:
        ends = [part.split("-") for part in text.split(",")]
        return sorted({slot for end in ends for slot in range(int(end[0]), int(end[-1]) + 1)})
    except ValueError:
        raise WrongUse(f"{text!r} does not name slots; slots look like 0-99,512") from None


def _progress(moved: Moved) -> None:
    remark(f"Waiting for shard {moved.giver}: {_left(moved.left)}")


def _left(left: Left) -> str:
    numbers = (
        (left.waiting, "waiting"),
        (left.held, "in progress"),
        (left.delayed, "delayed"),
        (len(left.waits_for), "open transactions"),
    )
    return ", ".join(f"{n:,} {what}" for n, what in numbers if n)


def _report(moves: list[Moved]) -> None:
    if not moves:
        say("Nothing to move.")
    for one in moves:
        what = f"{count(len(one.slots), 'slot')} from shard {one.giver} to shard {one.to}"
        say(f"Moved: {what}" if one.is_over else f"Not yet over: {what}: {_left(one.left)}")
        if one.left.dead:
            remark(
                f"{count(one.left.dead, 'dead letter')} with such keys stay on shard {one.giver}"
            )
    if not all(one.is_over for one in moves):
        raise typer.Exit(1)
