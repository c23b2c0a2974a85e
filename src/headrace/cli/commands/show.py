"""`headrace show`: one event, with everything that happened to it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from headrace.cli.source import Where
from headrace.cli.terminal import times
from headrace.cli.terminal.command import command
from headrace.cli.terminal.json import json_line, pretty, print_json
from headrace.cli.terminal.options import Json
from headrace.cli.terminal.table import Column, Show, print_facts, print_table
from headrace.cli.terminal.text import (
    clean,
    clean_lines,
    count,
    last_line,
    listed,
    number,
    say,
    state,
)
from headrace.model import Event, LogEntry
from headrace.model.codec import codec_of
from headrace.model.story import Story

Id = Annotated[int, typer.Argument(metavar="ID", help="Event id.", min=1)]

ENTRIES = (
    Show(Column("at", 1), lambda entry: times.exact(entry.created_at)),
    Show(Column("ago", 5, right=True), lambda entry: times.ago(entry.created_at)),
    Show(Column("action", 0), lambda entry: state(entry.action)),
    Show(Column("attempt", 3, right=True), lambda entry: number(entry.attempt)),
    Show(Column("queue", 4, 8), lambda entry: entry.queue or "–"),
    Show(Column("worker", 5, 10), lambda entry: entry.worker_id or "–"),
    Show(Column("took", 5, right=True), lambda entry: times.milliseconds(entry.execution_time_ms)),
    Show(Column("error", 2, 16), lambda entry: _more(entry)),
)
DELIVERIES = (
    Show(Column("queue", 0, 8), lambda one: one.queue),
    Show(Column("status", 1), lambda one: state(one.status)),
    Show(Column("attempts", 3, right=True), lambda one: number(one.attempts)),
    Show(Column("failures", 4, right=True), lambda one: f"{one.retry_count} of {one.max_retries}"),
    Show(Column("next retry", 3), lambda one: times.ago(one.next_retry_at)),
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


@command(
    examples="""
    headrace show 42
    headrace show 42 --json | jq .payload
    """,
)
def show(id: Id, json: Json = False, *, where: Where) -> None:
    """Show one event: payload, status in each queue, log, cause and effects."""
    with where.opened() as source:
        story, log = source.story(id), source.log(id)
    if json:
        told = {name: getattr(story, name) for name in ("deliveries", "caused_by", "causes")}
        print_json([{**msgspec.structs.asdict(story.event), **told, "log": log}])
    else:
        _show(story, log, where.queue)


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
            ("next retry", times.both(event.next_retry_at) if event.next_retry_at else None),
            ("in progress by" if event.status == "PROCESSING" else "worker", event.worker_id),
            ("lease ends", times.both(event.lease_expires_at) if event.lease_expires_at else None),
            ("attempts", _attempts(event)),
            ("reason", event.reason),
            ("tags", listed(event.tags) if event.tags else None),
            ("key", event.key),
            ("unique", event.unique),
            ("debounce", event.debounce),
            ("superseded by", str(event.superseded_by) if event.superseded_by else None),
            ("priority", str(event.priority) if event.priority != 5 else None),
            ("encoded by", codec_of(event)),
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
        say("\nQueues")
        print_table(DELIVERIES, story.deliveries)
    if log:
        say("\nLog")
        print_table(ENTRIES, log)
    if story.causes:
        say("\nCaused events")
        print_table(RELATIVES, story.causes)
    print_error(next((one.error_message for one in reversed(log) if one.error_message), None))


def _more(entry: LogEntry) -> str:
    """The error, or how it goes on."""
    if entry.due_at is not None:
        return f"until {times.exact(entry.due_at)}"
    if entry.superseded_by is not None:
        return f"by event {entry.superseded_by}"
    return last_line(entry.error_message)


def _cause(story: Story) -> str | None:
    cause = story.caused_by
    if cause is None:
        return story.event.causation_id
    return f"event {cause.id}: {cause.type}, {cause.status or 'not found'}"


def _attempts(event: Event) -> str:
    words = [count(event.attempts, "attempt"), count(event.retry_count, "failure")]
    if event.crashes:
        words.append(count(event.crashes, "crash", "crashes"))
    if event.snoozes:
        words.append(count(event.snoozes, "snooze"))
    limit = "" if event.max_retries is None else f" (dead letter after {max(1, event.max_retries)})"
    return ", ".join(words) + limit


def _pairs(mapping: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in mapping.items())


def print_error(error: str | None) -> None:
    """Print an error that is too long for a table."""
    if error and "\n" in error.strip():
        say("\nLast error")
        say(clean_lines(error.strip()))
