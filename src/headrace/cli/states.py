"""`headrace pause`, `resume`, `drain`: whether a queue takes and hands out."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headrace.cli.failing import Interrupted
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Namespace
from headrace.cli.progress import Bar
from headrace.cli.showing import clean, say
from headrace.cli.source import opened

PAUSE = 0.2  # seconds between two looks at a queue that is drained

MaybeName = Annotated[
    str, typer.Argument(metavar="QUEUE", help="The queue; main if none is named.")
]


def register(app: typer.Typer) -> None:
    """Add what concerns a queue's state."""
    described(
        app,
        panel="Queues",
        examples="""
        headrace pause
        headrace pause billing --namespace shop
        """,
    )(pause)
    described(
        app,
        panel="Queues",
        examples="""
        headrace resume
        headrace resume billing --namespace shop
        """,
    )(resume)
    described(
        app,
        panel="Queues",
        examples="""
        headrace drain billing
        headrace drain billing --wait && headrace queues remove billing --yes
        """,
    )(drain)


def pause(
    name: MaybeName = "main", namespace: Namespace = "default", dsn: Dsn = None, data: Data = None
) -> None:
    """Pause a queue: events are still published into it, and nobody gets any of them."""
    with opened(dsn, data, namespace, name) as source:
        source.pause()
    say(f"Paused: {clean(namespace)}/{clean(name)}")


def resume(
    name: MaybeName = "main", namespace: Namespace = "default", dsn: Dsn = None, data: Data = None
) -> None:
    """Make a queue active again, after pause or drain."""
    with opened(dsn, data, namespace, name) as source:
        source.resume()
    say(f"Active: {clean(namespace)}/{clean(name)}")


def drain(
    name: MaybeName = "main",
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until it is empty, and then paused.")
    ] = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Have a queue take nothing new, work off what is there, and then be paused."""
    with opened(dsn, data, namespace, name) as source:
        source.drain()
        where = f"{clean(namespace)}/{clean(name)}"
        if not wait:
            say(f"Draining: {where}")
            return
        try:
            with Bar(f"Draining {where}", None, unit="wait") as bar:
                while (queue := source.queue()).state == "draining":
                    bar.at(queue.depth)
                    time.sleep(PAUSE)
        except KeyboardInterrupt:
            raise Interrupted(
                f"Interrupted: {where} goes on draining; `headrace resume` makes it active."
            ) from None
    say(f"{'Drained, and paused' if queue.state == 'paused' else 'It was made active'}: {where}")
