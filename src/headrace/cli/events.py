"""`headrace events`, `show`, `cancel`, `reset`, `erase`: events, one by one and in lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, cast, get_args

import msgspec
import typer

from headrace.cli import options, times
from headrace.cli.asking import confirm
from headrace.cli.failing import NotDone
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Json, Namespace, Queue, Reason, Yes
from headrace.cli.showing import (
    Column,
    Show,
    clean,
    clean_lines,
    count,
    listed,
    number,
    pretty,
    print_facts,
    print_json,
    print_table,
    remark,
    say,
    state,
)
from headrace.cli.source import opened
from headrace.errors import Conflict, NotFound
from headrace.model import Event, LogEntry, Status

PAGE = 1000  # events that are asked for at once
PANEL = "Events"

# As typer wants them in a list.
Statuses = StrEnum("Statuses", {status: status for status in get_args(Status)})  # type: ignore[misc]

Id = Annotated[int, typer.Argument(metavar="ID", help="The event's id.", min=1)]
Ids = Annotated[list[int], typer.Argument(metavar="ID", help="The events' ids.", min=1)]

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
ENTRIES = (
    Show(Column("at", 1), lambda entry: times.exact(entry.created_at)),
    Show(Column("ago", 5, right=True), lambda entry: times.ago(entry.created_at)),
    Show(Column("action", 0), lambda entry: state(entry.action)),
    Show(Column("attempt", 3, right=True), lambda entry: number(entry.attempt)),
    Show(Column("queue", 4, 8), lambda entry: entry.queue or "–"),
    Show(Column("worker", 5, 10), lambda entry: entry.worker_id or "–"),
    Show(Column("took", 5, right=True), lambda entry: took(entry.execution_time_ms)),
    Show(Column("error", 2, 16), lambda entry: last_line(entry.error_message)),
)
DELIVERIES = (
    Show(Column("queue", 0, 8), lambda one: one.queue),
    Show(Column("status", 1), lambda one: state(one.status)),
    Show(Column("attempts", 3, right=True), lambda one: number(one.attempts)),
    Show(Column("failures", 4, right=True), lambda one: f"{one.retry_count} of {one.max_retries}"),
    Show(Column("next try", 3), lambda one: times.ago(one.next_retry_at)),
    Show(Column("worker", 4, 10), lambda one: one.worker_id or "–"),
    Show(Column("changed", 2, right=True), lambda one: times.ago(one.updated_at)),
)


def register(app: typer.Typer) -> None:
    """Add the commands of this subject."""
    described(
        app,
        panel=PANEL,
        examples="""
        headrace events
        headrace events --status FAILED --type 'order.*' --since 2h
        headrace events --namespace shop --queue billing --limit 100
        headrace events --orphaned --json | jq .id
        """,
    )(events)
    described(
        app,
        panel=PANEL,
        examples="""
        headrace show 42
        headrace show 42 --json | jq .payload
        """,
    )(show)
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

        found = pages(ask, limit, before, after, oldest_first=oldest_first)
        if json:
            print_json(found)
            return
        shown = list(found)
    if not shown:
        say(f"There are no such events in {clean(namespace)}/{clean(queue)}.")
        return
    print_table(EVENTS, shown)
    if len(shown) == limit:
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


def show(
    id: Id,
    json: Json = False,
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Show one event and its whole story: payload, where it stands in each queue, what happened to it."""
    with opened(dsn, data, namespace, queue) as source:
        event = source.event(id, deliveries=True)
        log = source.log(id)
    if json:
        print_json([{**msgspec.structs.asdict(event), "log": log}])
    else:
        _show(event, log, queue)


def _show(event: Event, log: list[LogEntry], queue: str) -> None:
    title = state(event.status)
    title.append(f"  {clean(event.type)}", style="bold")
    say(title)
    print_facts(
        [
            ("id", str(event.id)),
            ("title", event.title if event.title != event.type else None),
            ("description", event.description),
            ("created", times.both(event.created_at)),
            ("changed", times.both(event.updated_at)),
            ("next try", times.both(event.next_retry_at) if event.next_retry_at else None),
            ("in work by" if event.status == "PROCESSING" else "worker", event.worker_id),
            ("lease ends", times.both(event.lease_expires_at) if event.lease_expires_at else None),
            ("attempts", _attempts(event)),
            ("tags", listed(event.tags) if event.tags else None),
            ("key", event.key),
            ("priority", str(event.priority) if event.priority != 5 else None),
            ("version", event.version),
            ("source", None if event.source is None else _pairs(event.source)),
            ("producer", event.producer),
            ("correlation", event.correlation_id),
            ("causation", event.causation_id),
            ("trace", event.trace_id),
            ("schedule", event.scheduled_task_id),
            ("scheduled for", times.both(event.scheduled_for) if event.scheduled_for else None),
        ]
    )
    say("\nPayload")
    say(pretty(event.payload))
    if event.deliveries and [one.queue for one in event.deliveries] != [queue]:
        say("\nIn each queue")
        print_table(DELIVERIES, event.deliveries)
    if log:
        say("\nWhat happened")
        print_table(ENTRIES, log)
    print_error(next((one.error_message for one in reversed(log) if one.error_message), None))


def _attempts(event: Event) -> str:
    words = [count(event.attempts, "attempt"), count(event.retry_count, "failure")]
    if event.crashes:
        words.append(count(event.crashes, "crash", "crashes"))
    limit = "" if event.max_retries is None else f" (dead after {max(1, event.max_retries)})"
    return ", ".join(words) + limit


def _pairs(mapping: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in mapping.items())


def took(milliseconds: int | None) -> str:
    return "–" if milliseconds is None else times.length(milliseconds / 1000)


def last_line(text: str | None) -> str:
    """Of an error, which in a traceback is what it says."""
    return (text or "").strip().rpartition("\n")[2] or ("–" if not text else "")


def print_error(error: str | None) -> None:
    """An error that is longer than a table has room for."""
    if error and "\n" in error.strip():
        say("\nThe last error")
        say(clean_lines(error.strip()))


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
