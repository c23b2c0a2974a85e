"""`headrace events`: the events of a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, cast, get_args

import typer

from headrace.cli.source import Where
from headrace.cli.terminal import options, times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.table import Column, Show, print_table
from headrace.cli.terminal.text import listed, number, remark, say, state
from headrace.model import Event, Status

PAGE = 1000  # events that are read at once

# typer accepts a list of these, and none of literals.
Statuses = StrEnum("Statuses", {status: status for status in get_args(Status)})  # type: ignore[misc]

EVENTS = (
    Show(Column("id", 0, right=True), lambda event: str(event.id)),
    Show(Column("status", 1), lambda event: state(event.status)),
    Show(Column("type", 1, 12), lambda event: event.type),
    Show(Column("attempts", 4, right=True), lambda event: number(event.attempts)),
    Show(Column("age", 2, right=True), lambda event: times.ago(event.created_at)),
    Show(Column("created", 5), lambda event: times.exact(event.created_at)),
    Show(Column("next retry", 6), lambda event: times.ago(event.next_retry_at)),
    Show(Column("worker", 7, 10), lambda event: event.worker_id or "–"),
    Show(Column("tags", 8, 10), lambda event: listed(event.tags)),
    Show(Column("key", 9, 8), lambda event: event.key or "–"),
)


@command(
    examples="""
    headrace events
    headrace events --status FAILED --type 'order.*' --since 2h
    headrace events --namespace shop --queue billing --limit 100
    headrace events --find 7c1f6d0e-order-42
    headrace events --orphaned --json | jq .id
    """,
)
def events(
    status: Annotated[
        list[Statuses] | None,
        typer.Option(
            "--status",
            "-s",
            metavar="STATUS",
            help="Only these: PENDING, PROCESSING, COMPLETED, COMPLETED_WITH_ERRORS, FAILED, "
            "CANCELLED. Repeat for several.",
            show_default=False,
            case_sensitive=False,
        ),
    ] = None,
    types: options.Types = None,
    tags: options.Tags = None,
    all_tags: options.AllTags = False,
    since: options.Since = None,
    until: options.Until = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Only events with this ordering key.", show_default=False),
    ] = None,
    orphaned: Annotated[
        bool,
        typer.Option("--orphaned", help="Only in progress without a heartbeat for 30 s."),
    ] = False,
    limit: options.Limit = 20,
    before: options.Before = None,
    after: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Only newer than this id.", show_default=False),
    ] = None,
    oldest_first: Annotated[
        bool, typer.Option("--oldest-first", help="Sort oldest first.")
    ] = False,
    find: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Only events with this id, idempotency key or correlation id; other filters are "
            "ignored.",
            show_default=False,
        ),
    ] = None,
    payload: options.Payload = False,
    json: Json = False,
    *,
    where: Where,
) -> None:
    """List the events of a queue, newest first."""
    with where.opened() as source:

        def ask(**place: Any) -> list[Event]:
            return source.events(
                status=[cast(Status, one.value) for one in status] if status else None,
                types=types,
                tags=tags,
                all_tags=all_tags,
                since=since,
                until=until,
                key=key,
                orphaned=orphaned,
                oldest_first=oldest_first,
                payload=payload and json,
                **place,
            ).events

        if find is None:
            found = pages(ask, limit, before, after, oldest_first=oldest_first)
        else:
            found = iter(source.find_events(find, limit=limit, payload=payload and json))
        if json:
            print_json(found)
            return
        shown = list(found)
    if not shown:
        say(f"No matching events in {where.path()}.")
        return
    print_table(EVENTS, shown)
    if len(shown) == limit and find is None:
        more = f"--after {shown[-1].id}" if oldest_first else f"--before {shown[-1].id}"
        remark(f"There may be more: use {more} or a higher --limit.")


def pages(
    ask: Callable[..., list[Event]],
    limit: int,
    before: int | None,
    after: int | None,
    *,
    oldest_first: bool,
) -> Iterator[Event]:
    """Up to `limit` events, over as many pages as that takes."""
    while limit > 0:
        found = ask(limit=min(limit, PAGE), before=before, after=after)
        yield from found
        if len(found) < min(limit, PAGE):
            return
        limit -= len(found)
        before, after = (before, found[-1].id) if oldest_first else (found[-1].id, after)
