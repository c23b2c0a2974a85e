"""`headrace show`: one event and its whole story."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from headrace.cli import times
from headrace.cli.help import described
from headrace.cli.options import Data, Dsn, Json, Namespace, Queue
from headrace.cli.showing import (
    Column,
    Show,
    clean,
    clean_lines,
    count,
    json_line,
    listed,
    number,
    pretty,
    print_facts,
    print_json,
    print_table,
    say,
    state,
)
from headrace.cli.source import opened
from headrace.model import Event, LogEntry
from headrace.stories import Story

PANEL = "Events"

Id = Annotated[int, typer.Argument(metavar="ID", help="The event's id.", min=1)]

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


RELATIVES = (
    Show(Column("id", 0, right=True), lambda one: str(one.id)),
    Show(Column("status", 1), lambda one: state(one.status)),
    Show(Column("type", 1, 12), lambda one: one.type),
    Show(Column("age", 2, right=True), lambda one: times.ago(one.created_at)),
    Show(Column("created", 3), lambda one: times.exact(one.created_at)),
)


def register(app: typer.Typer) -> None:
    described(
        app,
        panel=PANEL,
        examples="""
        headrace show 42
        headrace show 42 --json | jq .payload
        """,
    )(show)


def show(
    id: Id,
    json: Json = False,
    namespace: Namespace = "default",
    queue: Queue = "main",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Show one event and its whole story: payload, where it stands in each queue, what happened to it, what caused it and
    what it caused."""
    with opened(dsn, data, namespace, queue) as source:
        story, log = source.story(id), source.log(id)
    if json:
        told = {name: getattr(story, name) for name in ("deliveries", "caused_by", "causes")}
        print_json([{**msgspec.structs.asdict(story.event), **told, "log": log}])
    else:
        _show(story, log, queue)


def _show(story: Story, log: list[LogEntry], queue: str) -> None:
    event = story.event
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
            ("reason", event.reason),
            ("tags", listed(event.tags) if event.tags else None),
            ("key", event.key),
            ("priority", str(event.priority) if event.priority != 5 else None),
            ("version", event.version),
            ("source", None if event.source is None else _pairs(event.source)),
            ("producer", event.producer),
            ("headers", None if not event.headers else json_line(event.headers)),
            ("correlation", event.correlation_id),
            ("caused by", _cause(story)),
            ("trace", event.trace_id),
            ("schedule", event.scheduled_task_id),
            ("scheduled for", times.both(event.scheduled_for) if event.scheduled_for else None),
        ]
    )
    say("\nPayload")
    say(pretty(event.payload))
    if [one.queue for one in story.deliveries] != [queue]:
        say("\nIn each queue")
        print_table(DELIVERIES, story.deliveries)
    if log:
        say("\nWhat happened")
        print_table(ENTRIES, log)
    if story.causes:
        say("\nWhat it caused")
        print_table(RELATIVES, story.causes)
    print_error(next((one.error_message for one in reversed(log) if one.error_message), None))


def _cause(story: Story) -> str | None:
    cause = story.caused_by
    if cause is None:
        return story.event.causation_id
    return f"event {cause.id}: {cause.type}, {cause.status or 'not here'}"


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
