"""`headrace schedules`: events that are published by the clock."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from headrace.cli.source import InNamespace
from headrace.cli.terminal import options, settings, times
from headrace.cli.terminal.command import Group
from headrace.cli.terminal.confirm import confirm
from headrace.cli.terminal.json import print_json
from headrace.cli.terminal.options import Json, Yes
from headrace.cli.terminal.table import Column, Show, print_table
from headrace.cli.terminal.text import clean, say, state
from headrace.model import Missed, ScheduledTask

schedules = Group(
    "schedules", "Schedules: events that are published by the clock. Without a command: list."
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")]

SCHEDULES = (
    Show(Column("schedule", 0, 10), lambda one: one.name),
    Show(Column("state", 1), lambda one: state("active" if one.active else "paused")),
    Show(Column("cron", 2), lambda one: one.cron_expression),
    Show(Column("next", 1, right=True), lambda one: times.ago(_next(one))),
    Show(Column("next at", 4), lambda one: times.exact(_next(one))),
    Show(Column("type", 3, 10), lambda one: one.event_type),
    Show(Column("last", 5, right=True), lambda one: times.ago(one.last_fire_at)),
    Show(Column("zone", 6), lambda one: one.timezone),
    Show(Column("missed", 7), lambda one: one.missed),
)

Unique = Annotated[
    str | None,
    typer.Option(
        metavar="KEY",
        help="Unique key: a fire adds no event while the previous one is unfinished.",
        show_default=False,
    ),
]


@dataclass(frozen=True)
class Fields:
    """The fields of the published events, under the names that the client has for them."""

    tags: options.EventTags = None
    priority: options.Priority = None
    key: options.Key = None
    max_retries: options.MaxRetries = None
    title: options.Title = None
    description: options.Description = None
    headers: settings.Headers = None
    unique: Unique = None


@schedules.command(
    "list",
    examples="""
    headrace schedules
    headrace schedules list --json | jq -r '.name, .next_fires[0]'
    """,
)
def list_(json: Json = False, *, where: InNamespace) -> None:
    """List the schedules of a namespace and when they fire next."""
    with where.opened() as source:
        found = source.schedules()
    if json:
        print_json(found)
    elif found:
        print_table(SCHEDULES, found)
    else:
        say(f"There are no schedules in {clean(where.namespace)}.")


def _next(schedule: ScheduledTask) -> Any:
    return schedule.next_fires[0] if schedule.active and schedule.next_fires else None


@schedules.command(
    examples="""
    headrace schedules add nightly '0 2 * * *' report.requested '{"kind": "nightly"}'
    headrace schedules add tick '*/10 * * * * *' clock.tick
    headrace schedules add closing '0 18 * * 1-5' shop.closes --timezone Europe/Berlin
    """,
)
def add(
    name: Name,
    cron: Annotated[
        str,
        typer.Argument(
            metavar="CRON", help="Cron expression of five fields, or six with seconds first."
        ),
    ],
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Event type.")] = "event",
    payload: Annotated[
        str | None, typer.Argument(metavar="JSON", help="Payload.", show_default=False)
    ] = None,
    timezone: Annotated[
        str, typer.Option(metavar="ZONE", help="Time zone, as in Europe/Berlin.")
    ] = "UTC",
    missed: Annotated[
        Missed,
        typer.Option(
            metavar="POLICY",
            help="Fires missed during an outage: coalesce (one event for all), catch_up (each of "
            "the last 100), skip.",
        ),
    ] = "coalesce",
    *,
    fields: Fields,
    where: InNamespace,
) -> None:
    """Publish an event at the times of a cron expression. This changes an existing schedule."""
    with where.opened() as source:
        made = source.schedule_task(
            name,
            cron,
            type,
            None if payload is None else settings.json_value(payload),
            timezone=timezone,
            missed=missed,
            **asdict(fields),
        )
    paused = "" if made.active else " (it is paused)"
    say(f"Scheduled: {clean(made.name)}, next {times.both(_next(made))}{paused}")


@schedules.command(examples="headrace schedules pause nightly")
def pause(name: Name, *, where: InNamespace) -> None:
    """Pause a schedule: it does not fire until it is resumed."""
    with where.opened() as source:
        source.pause_schedule(name)
    say(f"Paused: {clean(name)}")


@schedules.command(examples="headrace schedules resume nightly")
def resume(name: Name, *, where: InNamespace) -> None:
    """Resume a schedule, from now on."""
    with where.opened() as source:
        made = source.resume_schedule(name)
    say(f"Active: {clean(name)}, next {times.both(_next(made))}")


@schedules.command(examples="headrace schedules run nightly")
def run(name: Name, *, where: InNamespace) -> None:
    """Publish the event of a schedule now; its fires stay unchanged."""
    with where.opened() as source:
        event = source.run_schedule(name)
    say(f"Published: event {event.id}")


@schedules.command(examples="headrace schedules remove nightly --yes")
def remove(name: Name, yes: Yes = False, *, where: InNamespace) -> None:
    """Remove a schedule; events that it published stay."""
    with where.opened() as source:
        confirm(f"This removes the schedule {name} from {where.namespace}", yes=yes)
        source.remove_schedule(name)
    say(f"Removed: {clean(name)}")
