"""`headrace pause`, `resume`, `drain`: whether a queue accepts events and delivers them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headrace.cli.source import InNamespace
from headrace.cli.terminal.command import command
from headrace.cli.terminal.errors import Interrupted
from headrace.cli.terminal.progress import Bar
from headrace.cli.terminal.text import say

PAUSE = 0.2  # seconds between two looks at a draining queue

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue; default: main.")]


@command(
    examples="""
    headrace pause
    headrace pause billing --namespace shop
    """,
)
def pause(name: Name = "main", *, where: InNamespace) -> None:
    """Pause a queue: it still accepts events, and delivers none."""
    with where.opened(name) as source:
        source.pause()
    say(f"Paused: {where.path(name)}")


@command(
    examples="""
    headrace resume
    headrace resume billing --namespace shop
    """,
)
def resume(name: Name = "main", *, where: InNamespace) -> None:
    """Make a queue active again, after pause or drain."""
    with where.opened(name) as source:
        source.resume()
    say(f"Active: {where.path(name)}")


@command(
    examples="""
    headrace drain billing
    headrace drain billing --wait && headrace queues remove billing --yes
    """,
)
def drain(
    name: Name = "main",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it is empty and paused.")
    ] = False,
    *,
    where: InNamespace,
) -> None:
    """Drain a queue: it refuses new events, delivers those it has, and pauses when it is empty."""
    with where.opened(name) as source:
        source.drain()
        path = where.path(name)
        if not wait:
            say(f"Draining: {path}")
            return
        try:
            with Bar(f"Draining {path}", None, unit="waiting") as bar:
                while (queue := source.queue()).state == "draining":
                    bar.at(queue.depth)
                    time.sleep(PAUSE)
        except KeyboardInterrupt:
            raise Interrupted(
                f"Interrupted: {path} is still draining; `headrace resume` makes it active."
            ) from None
    say(f"{'Drained and paused' if queue.state == 'paused' else 'Resumed meanwhile'}: {path}")
