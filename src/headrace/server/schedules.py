"""Schedules: events that are published by the clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType
from starlette.responses import Response

from headrace.errors import ScheduleNotFound
from headrace.model import Missed, ScheduledTask
from headrace.server.operations import Call, InNamespace, Operation, answer, location
from headrace.server.queues import Name, Object, changes
from headrace.server.tokens import quoted
from headrace.server.wire import EventBody, Tags, event_body, tag_list, told


class ScheduleBody(msgspec.Struct, frozen=True, kw_only=True):
    """An event that is published by the clock."""

    task_id: str
    name: str
    cron_expression: str
    timezone: str
    event_type: str
    payload: Any
    event: Object
    """What else it is published with: tags, priority, …"""
    missed: Missed
    active: bool
    """False: it is paused."""
    next_fires: list[str]
    """As far as they are worked out."""
    last_fire_at: str | None
    created_at: str
    updated_at: str


class ScheduleList(msgspec.Struct, frozen=True):
    """The schedules of a namespace, by name."""

    schedules: list[ScheduleBody]


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event to publish by the clock."""

    name: Name
    cron_expression: str
    """Five fields, or six with seconds first."""
    event_type: str = "event"
    payload: Any = None
    timezone: str = "UTC"
    missed: Missed = "coalesce"
    """What becomes of fires that everybody was down for."""
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


class ScheduleChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to change of a schedule; what is not named stays as it is."""

    cron_expression: str | UnsetType = UNSET
    event_type: str | UnsetType = UNSET
    payload: Any = UNSET
    timezone: str | UnsetType = UNSET
    missed: Missed | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    """False pauses it, true resumes it."""
    tags: Tags | UnsetType | None = UNSET
    priority: int | UnsetType | None = UNSET
    key: str | UnsetType | None = UNSET
    max_retries: int | UnsetType | None = UNSET
    backoff: Object | UnsetType | None = UNSET
    title: str | UnsetType | None = UNSET
    description: str | UnsetType | None = UNSET
    version: str | UnsetType | None = UNSET
    source: dict[str, str] | UnsetType | None = UNSET
    headers: Object | UnsetType | None = UNSET


async def list_schedules(call: Call) -> Response:
    """The schedules of a namespace, by name, with their next fires."""
    return answer(
        ScheduleList([told(ScheduleBody, task) for task in await call.client.schedules()])
    )


async def create_schedule(call: Call) -> Response:
    """Publish an event by the clock. A schedule of this name is changed; one that says the same is left as it is: 201
    either way."""
    body: NewSchedule = call.body
    made = await _schedule(call, msgspec.structs.asdict(body))
    where = location(call, f"/schedules/{quote(made.name, safe='')}")
    return answer(told(ScheduleBody, made), 201, where)


async def show_schedule(call: Call) -> Response:
    """One schedule."""
    return answer(told(ScheduleBody, await _its_schedule(call)))


async def change_schedule(call: Call) -> Response:
    """Change what is named of a schedule."""
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
    """Remove a schedule; what it has fired stays."""
    await call.client.remove_schedule(_schedule_name(call), actor=call.actor)
    return Response(status_code=204)


async def pause_schedule(call: Call) -> Response:
    """Fire no more until it is resumed; what would have been fired meanwhile is not missed."""
    await call.client.pause_schedule(_schedule_name(call), actor=call.actor)
    return await show_schedule(call)


async def resume_schedule(call: Call) -> Response:
    """Fire again, from now on."""
    task = await call.client.resume_schedule(_schedule_name(call), actor=call.actor)
    return answer(told(ScheduleBody, task))


async def run_schedule(call: Call) -> Response:
    """Publish the event of a schedule now, also of a paused one; its fires stay as they are."""
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
    """What a schedule would be made with anew."""
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
