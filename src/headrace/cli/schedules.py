"""`headrace schedules`: events that are published by the clock."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from headrace.cli import options, settings, times
from headrace.cli.asking import confirm
from headrace.cli.help import Group, described
from headrace.cli.options import Data, Dsn, Json, Namespace, Yes
from headrace.cli.showing import Column, Show, clean, print_json, print_table, say, state
from headrace.cli.source import opened
from headrace.model import Missed, ScheduledTask

schedules = typer.Typer(
    cls=Group,
    help="Schedules: events that are published by the clock. Without a command: list.",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The schedule.")]

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


@described(
    schedules,
    "list",
    examples="""
    headrace schedules
    headrace schedules list --json | jq -r '.name, .next_fires[0]'
    """,
)
def list_(
    json: Json = False, namespace: Namespace = "default", dsn: Dsn = None, data: Data = None
) -> None:
    """List the schedules of a namespace with their next fires."""
    with opened(dsn, data, namespace) as source:
        found = source.schedules()
    if json:
        print_json(found)
    elif found:
        print_table(SCHEDULES, found)
    else:
        say(f"There are no schedules in {clean(namespace)}.")


def _next(schedule: ScheduledTask) -> Any:
    return schedule.next_fires[0] if schedule.active and schedule.next_fires else None


@described(
    schedules,
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
            metavar="CRON", help="When: five fields, or six with seconds first, in quotes."
        ),
    ],
    type: Annotated[str, typer.Argument(metavar="TYPE", help="The type of its events.")] = "event",
    payload: Annotated[
        str | None, typer.Argument(metavar="JSON", help="Their payload.", show_default=False)
    ] = None,
    timezone: Annotated[
        str, typer.Option(metavar="ZONE", help="Whose clock, as in Europe/Berlin.")
    ] = "UTC",
    missed: Annotated[
        Missed,
        typer.Option(
            metavar="POLICY",
            help="What becomes of fires that everybody was down for: coalesce (one event for all), catch_up (each of the "
            "last 100), skip.",
        ),
    ] = "coalesce",
    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="A tag. Repeat for several.", show_default=False),
    ] = None,
    priority: options.Priority = None,
    key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Ordering key.", show_default=False)
    ] = None,
    max_retries: options.MaxRetries = None,
    title: options.ForPeople = None,
    description: options.ForPeople = None,
    headers: settings.Headers = None,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Publish an event at the instants of a cron expression. A schedule of this name is changed."""
    with opened(dsn, data, namespace) as source:
        made = source.schedule_task(
            name,
            cron,
            type,
            None if payload is None else settings.json_value(payload),
            timezone=timezone,
            missed=missed,
            tags=tags,
            priority=priority,
            key=key,
            max_retries=max_retries,
            title=title,
            description=description,
            headers=headers,
        )
    paused = "" if made.active else " (it is paused)"
    say(f"Scheduled: {clean(made.name)}, next {times.both(_next(made))}{paused}")


@described(schedules, examples="headrace schedules pause nightly")
def pause(name: Name, namespace: Namespace = "default", dsn: Dsn = None, data: Data = None) -> None:
    """Fire no more, until resume."""
    with opened(dsn, data, namespace) as source:
        source.pause_schedule(name)
    say(f"Paused: {clean(name)}")


@described(schedules, examples="headrace schedules resume nightly")
def resume(
    name: Name, namespace: Namespace = "default", dsn: Dsn = None, data: Data = None
) -> None:
    """Fire again, from now on."""
    with opened(dsn, data, namespace) as source:
        made = source.resume_schedule(name)
    say(f"Active: {clean(name)}, next {times.both(_next(made))}")


@described(schedules, examples="headrace schedules run nightly")
def run(name: Name, namespace: Namespace = "default", dsn: Dsn = None, data: Data = None) -> None:
    """Publish its event now; its fires stay as they are."""
    with opened(dsn, data, namespace) as source:
        event = source.run_schedule(name)
    say(f"Published: event {event.id}")


@described(schedules, examples="headrace schedules remove nightly --yes")
def remove(
    name: Name,
    yes: Yes = False,
    namespace: Namespace = "default",
    dsn: Dsn = None,
    data: Data = None,
) -> None:
    """Remove a schedule; what it has fired stays."""
    with opened(dsn, data, namespace) as source:
        confirm(f"This removes the schedule {name} of {namespace}", yes=yes)
        source.remove_schedule(name)
    say(f"Removed: {clean(name)}")
