"""`headrace cancel`, `reset`, `rerun`, `erase`: an operator's actions on events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from headrace.cli.source import InNamespace, Where
from headrace.cli.terminal.command import command
from headrace.cli.terminal.confirm import confirm
from headrace.cli.terminal.errors import NotDone
from headrace.cli.terminal.options import Reason, Yes
from headrace.cli.terminal.text import count, remark, say
from headrace.errors import Conflict, NotFound

Ids = Annotated[list[int], typer.Argument(metavar="ID", help="Event ids.", min=1)]


@command(
    examples="""
    headrace cancel 42 --reason 'ordered twice'
    headrace cancel 42 43 44 --yes
    """,
)
def cancel(ids: Ids, reason: Reason = "", yes: Yes = False, *, where: Where) -> None:
    """Cancel events in a queue permanently. A worker that has one in progress loses it."""
    with where.opened() as source:
        place = f"{where.namespace}/{where.queue}"
        confirm(f"This permanently cancels {named(ids)} in {place}", yes=yes)
        each(ids, lambda id: source.cancel(id, reason=reason), "Cancelled")


@command(
    examples="""
    headrace reset 42 --reason 'the bank is back'
    """,
)
def reset(ids: Ids, reason: Reason = "", *, where: Where) -> None:
    """Make events ready now: a worker loses its claim, a delay ends, a dead letter is retried."""
    with where.opened() as source:
        each(ids, lambda id: source.reset(id, reason=reason), "Ready again")


@command(
    examples="""
    headrace rerun 42 --reason 'the report was wrong'
    headrace rerun 42 43 44
    """,
)
def rerun(ids: Ids, reason: Reason = "", *, where: Where) -> None:
    """Deliver completed or cancelled events again, with all their retries. Their log continues."""
    with where.opened() as source:
        each(ids, lambda id: source.rerun(id, reason=reason), "Ready again")


@command(
    examples="""
    headrace erase 42 --reason 'the customer asked for it' --yes
    """,
)
def erase(ids: Ids, reason: Reason = "", yes: Yes = False, *, where: InNamespace) -> None:
    """Erase payload, descriptions and errors of events permanently. Their log entries stay."""
    with where.opened() as source:
        what = f"This permanently erases the contents of {named(ids)} in {where.namespace}"
        confirm(f"{what}, in all queues, and cancels unfinished deliveries", yes=yes)
        each(ids, lambda id: source.erase(id, reason=reason), "Erased")


def named(ids: list[int]) -> str:
    return f"event {ids[0]}" if len(ids) == 1 else f"{len(ids):,} events"


def each(ids: list[int], do: Callable[[int], Any], done: str) -> None:
    """Do it one by one and print each result; a failure does not stop the rest."""
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
        raise NotDone(f"{len(refused):,} of {count(len(ids), 'event')} failed.")
