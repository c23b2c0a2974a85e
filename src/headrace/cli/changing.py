"""`headrace cancel`, `reset`, `erase`: what an operator does to events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from headrace.cli.asking import confirm
from headrace.cli.failing import NotDone
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Namespace, Queue, Reason, Yes
from headrace.cli.showing import count, remark, say
from headrace.cli.source import opened
from headrace.errors import Conflict, NotFound

PANEL = "Events"

Ids = Annotated[list[int], typer.Argument(metavar="ID", help="The events' ids.", min=1)]


def register(app: typer.Typer) -> None:
    described(
        app,
        panel=PANEL,
        examples="""
        headrace cancel 42 --reason 'ordered twice'
        headrace cancel 42 43 44 --yes
        """,
    )(cancel)
    described(
        app,
        panel=PANEL,
        examples="""
        headrace reset 42 --reason 'the bank is back'
        """,
    )(reset)
    described(
        app,
        panel=PANEL,
        examples="""
        headrace erase 42 --reason 'the customer asked for it' --yes
        """,
    )(erase)


def cancel(
    ids: Ids,
    reason: Reason = "",
    yes: Yes = False,
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """End events in a queue for good, whether they wait or are in work: whoever works on one loses it."""
    with opened(dsn, data, namespace, queue) as source:
        confirm(f"This ends {named(ids)} in {namespace}/{queue} for good", yes=yes)
        each(ids, lambda id: source.cancel(id, reason=reason), "Cancelled")


def reset(
    ids: Ids,
    reason: Reason = "",
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Make events ready now: whoever works on one loses it, a delay is cut short, a dead letter is redriven."""
    with opened(dsn, data, namespace, queue) as source:
        each(ids, lambda id: source.reset(id, reason=reason), "Ready again")


def erase(
    ids: Ids,
    reason: Reason = "",
    yes: Yes = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Erase what events say, for good: payload, descriptions, errors. Their trail stays."""
    with opened(dsn, data, namespace) as source:
        what = f"This erases what {named(ids)} of {namespace} {'says' if len(ids) == 1 else 'say'}"
        confirm(f"{what}, in all queues and for good; what is not finished is cancelled", yes=yes)
        each(ids, lambda id: source.erase(id, reason=reason), "Erased")


def named(ids: list[int]) -> str:
    return f"event {ids[0]}" if len(ids) == 1 else f"{len(ids):,} events"


def each(ids: list[int], do: Callable[[int], Any], done: str) -> None:
    """One by one, each told; what cannot be done is told too, and does not keep the others from it."""
    refused: list[Exception] = []
    for id in dict.fromkeys(ids):
        try:
            do(id)
        except (Conflict, NotFound) as error:
            refused.append(error)
            if len(ids) > 1:
                remark(f"Not event {id}: {error}", style="red")
        else:
            say(f"{done}: event {id}")
    if refused and len(ids) == 1:
        raise refused[0]
    if refused:
        raise NotDone(f"{count(len(refused), 'event')} of {len(ids):,} could not be done.")
