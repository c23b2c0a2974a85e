"""`headrace events`, `show`, `cancel`, `reset`, `erase`: events, one by one and in lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, cast, get_args

import typer

from headrace.cli import options, times
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Json, Namespace, Queue
from headrace.cli.showing import (
    Column,
    Show,
    clean,
    listed,
    number,
    print_json,
    print_table,
    remark,
    say,
    state,
)
from headrace.cli.source import opened
from headrace.model import Event, Status

PAGE = 1000  # events that are asked for at once
PANEL = "Events"

# As typer wants them in a list.
Statuses = StrEnum("Statuses", {status: status for status in get_args(Status)})  # type: ignore[misc]

EVENTS = (
    Show(Column("id", 0, right=True), lambda event: str(event.id)),
    Show(Column("status", 1), lambda event: state(event.status)),
    Show(Column("type", 1, 12), lambda event: event.type),
    Show(Column("attempts", 4, right=True), lambda event: number(event.attempts)),
    Show(Column("age", 2, right=True), lambda event: times.ago(event.created_at)),
    Show(Column("created", 5), lambda event: times.exact(event.created_at)),
    Show(Column("next try", 6), lambda event: times.ago(event.next_retry_at)),
    Show(Column("worker", 7, 10), lambda event: event.worker_id or "–"),
    Show(Column("tags", 8, 10), lambda event: listed(event.tags)),
    Show(Column("key", 9, 8), lambda event: event.key or "–"),
)


def register(app: typer.Typer) -> None:
    described(
        app,
        panel=PANEL,
        examples="""
        headrace events
        headrace events --status FAILED --type 'order.*' --since 2h
        headrace events --namespace shop --queue billing --limit 100
        headrace events --find 7c1f6d0e-order-42
        headrace events --orphaned --json | jq .id
        """,
    )(events)


def events(
    status: Annotated[
        list[Statuses] | None,
        typer.Option(
            "--status",
            "-s",
            metavar="STATUS",
            help="Only these: PENDING, PROCESSING, COMPLETED, COMPLETED_WITH_ERRORS, FAILED, CANCELLED. Repeat for several.",
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
        typer.Option("--orphaned", help="Only those in work that nothing was heard of for 30 s."),
    ] = False,
    limit: options.Limit = 20,
    before: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Page on: only older than this event.", show_default=False),
    ] = None,
    after: Annotated[
        int | None,
        typer.Option(metavar="ID", help="Only newer than this event.", show_default=False),
    ] = None,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="The oldest first.")] = False,
    find: Annotated[
        str | None,
        typer.Option(
            metavar="WORD",
            help="Only the one with this id or idempotency key, or those with this correlation id; other filters do not count.",
            show_default=False,
        ),
    ] = None,
    payload: Annotated[
        bool, typer.Option("--payload", help="With their payloads (in JSON).")
    ] = False,
    json: Json = False,
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """List the events of a queue, the newest first."""
    with opened(dsn, data, namespace, queue) as source:

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
        say(f"There are no such events in {clean(namespace)}/{clean(queue)}.")
        return
    print_table(EVENTS, shown)
    if len(shown) == limit and find is None:
        more = f"--after {shown[-1].id}" if oldest_first else f"--before {shown[-1].id}"
        remark(f"There may be more: {more}, or a higher --limit.")


def pages(
    ask: Callable[..., list[Event]],
    limit: int,
    before: int | None,
    after: int | None,
    *,
    oldest_first: bool,
) -> Iterator[Event]:
    """As many as were asked for, however many a page holds."""
    while limit > 0:
        found = ask(limit=min(limit, PAGE), before=before, after=after)
        yield from found
        if len(found) < min(limit, PAGE):
            return
        limit -= len(found)
        before, after = (before, found[-1].id) if oldest_first else (found[-1].id, after)
