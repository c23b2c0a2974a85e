"""Schedules: events that are published by cron expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from headrace.errors import ScheduleNotFound
from headrace.model import Missed, ScheduledTask
from headrace.server.api.queues import changes
from headrace.server.api.shapes import EventBody, event_body
from headrace.server.api.values import Absent, Maybe, Name, Object, Tags, shape_of, tag_list, told
from headrace.server.http.gate import quoted
from headrace.server.http.operation import Call, InNamespace, Operation, answer, location


class ScheduleBody(shape_of(ScheduledTask)):  # type: ignore[misc]
    """An event that is published by cron expression."""


class ScheduleList(msgspec.Struct, frozen=True):
    """The schedules of a namespace, by name."""

    schedules: list[ScheduleBody]


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event to publish by cron expression."""

    name: Name
    cron_expression: str
    """Five fields, or six with the seconds first."""
    event_type: str = "event"
    payload: Any = None
    timezone: str = "UTC"
    missed: Missed = "coalesce"
    """What to do with fires that were due while nothing was running."""
    tags: Tags | None = None
    priority: int | None = None
    key: str | None = None
    max_retries: int | None = None
    backoff: Object | None = None
    title: str | None = None
    description: str | None = None
    version: str | None = None
    source: dict[str, str] | None = None
    headers: Object | None = None
    unique: str | None = None
    """While the event of an instant is unfinished, the next instants add none."""


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a schedule; a field that is left out stays as it is."""

    cron_expression: str | Absent = UNSET
    event_type: str | Absent = UNSET
    payload: Any = UNSET
    timezone: str | Absent = UNSET
    missed: Missed | Absent = UNSET
    active: bool | Absent = UNSET
    """False pauses it, true resumes it."""
    tags: Tags | Maybe = UNSET
    priority: int | Maybe = UNSET
    key: str | Maybe = UNSET
    max_retries: int | Maybe = UNSET
    backoff: Object | Maybe = UNSET
    title: str | Maybe = UNSET
    description: str | Maybe = UNSET
    version: str | Maybe = UNSET
    source: dict[str, str] | Maybe = UNSET
    headers: Object | Maybe = UNSET
    unique: str | Maybe = UNSET


async def list_schedules(call: Call) -> Response:
    """The schedules of a namespace, by name, with their next fires."""
    return answer(
        ScheduleList([told(ScheduleBody, task) for task in await call.client.schedules()])
    )


async def create_schedule(call: Call) -> Response:
    """Publish an event by cron expression. An existing schedule of this name is changed if it
    differs: 201 in every case."""
    body: NewSchedule = call.body
    made = await _schedule(call, msgspec.structs.asdict(body))
    where = location(call, f"/schedules/{quote(made.name, safe='')}")
    return answer(told(ScheduleBody, made), 201, where)


async def show_schedule(call: Call) -> Response:
    """One schedule."""
    return answer(told(ScheduleBody, await _its_schedule(call)))


async def change_schedule(call: Call) -> Response:
    """Change a schedule."""
    named = changes(call.body)
    active = named.pop("active", None)
    task = await _its_schedule(call)
    if named:
        task = await _schedule(call, {**_said(task), **named})
    if active is False:
        await call.client.pause_schedule(task.name, actor=call.actor)
    elif active:
        await call.client.resume_schedule(task.name, actor=call.actor)
    return await show_schedule(call)


async def delete_schedule(call: Call) -> Response:
    """Delete a schedule; the events it has published stay."""
    await call.client.remove_schedule(_schedule_name(call), actor=call.actor)
    return Response(status_code=204)


async def pause_schedule(call: Call) -> Response:
    """Pause a schedule. Fires that are due while it is paused do not count as missed."""
    await call.client.pause_schedule(_schedule_name(call), actor=call.actor)
    return await show_schedule(call)


async def resume_schedule(call: Call) -> Response:
    """Resume a schedule: it fires again from now on."""
    task = await call.client.resume_schedule(_schedule_name(call), actor=call.actor)
    return answer(told(ScheduleBody, task))


async def run_schedule(call: Call) -> Response:
    """Publish the event of a schedule now, even if it is paused; its next fires stay the same."""
    event = await call.client.run_schedule(_schedule_name(call), actor=call.actor)
    return answer(event_body(event), 201, location(call, f"/events/{event.id}"))


def _schedule_name(call: Call) -> str:
    name: str = call.request.path_params["name"]
    return name


async def _its_schedule(call: Call) -> ScheduledTask:
    name = _schedule_name(call)
    for task in await call.client.schedules():
        if task.name == name:
            return task
    raise ScheduleNotFound(
        f"there is no schedule {quoted(name)} in the namespace {quoted(call.namespace)}"
    )


async def _schedule(call: Call, said: Mapping[str, Any]) -> ScheduledTask:
    options = dict(said)
    name, cron = options.pop("name"), options.pop("cron_expression")
    options["tags"] = tag_list(options.get("tags"))
    return await call.client.schedule_task(name, cron, **options, actor=call.actor)


def _said(task: ScheduledTask) -> dict[str, Any]:
    """The arguments that would create this schedule."""
    return {
        "name": task.name,
        "cron_expression": task.cron_expression,
        "event_type": task.event_type,
        "payload": task.payload,
        "timezone": task.timezone,
        "missed": task.missed,
        **task.event,
    }


_SCHEDULE = "/schedules/{name}"
OPERATIONS = (
    Operation(
        *("GET", "/schedules", list_schedules, "read", InNamespace), answers={200: ScheduleList}
    ),
    Operation(
        *("POST", "/schedules", create_schedule, "admin", InNamespace),
        body=NewSchedule,
        carries_payload=True,
        answers={201: ScheduleBody},
    ),
    Operation("GET", _SCHEDULE, show_schedule, "read", InNamespace, answers={200: ScheduleBody}),
    Operation(
        *("PATCH", _SCHEDULE, change_schedule, "admin", InNamespace),
        body=ScheduleChange,
        carries_payload=True,
        answers={200: ScheduleBody},
    ),
    Operation("DELETE", _SCHEDULE, delete_schedule, "admin", InNamespace, answers={204: None}),
    Operation(
        *("POST", _SCHEDULE + "/pause", pause_schedule, "admin", InNamespace),
        answers={200: ScheduleBody},
    ),
    Operation(
        *("POST", _SCHEDULE + "/resume", resume_schedule, "admin", InNamespace),
        answers={200: ScheduleBody},
    ),
    Operation(
        *("POST", _SCHEDULE + "/run", run_schedule, "admin", InNamespace),
        answers={201: EventBody},
    ),
)
