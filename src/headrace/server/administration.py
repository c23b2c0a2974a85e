"""Namespaces, schedules, nodes, workers, dead letters, and who administered what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import quote

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from headrace import statements
from headrace.arguments import MAX_ID
from headrace.errors import NamespaceNotFound, ScheduleNotFound
from headrace.model import DeadLetter, Missed, ScheduledTask
from headrace.server.failures import Refusal
from headrace.server.operations import (
    Call,
    InNamespace,
    InQueue,
    Operation,
    Query,
    answer,
    location,
)
from headrace.server.queues import Deletion, Filter, Id, Name, Object, Words, changes
from headrace.server.steps import Stepped, take_steps
from headrace.server.tokens import quoted
from headrace.server.wire import (
    Absent,
    EventBody,
    Moment,
    Tags,
    event_body,
    moment,
    moment_or_none,
    tag_list,
    tag_string,
)

Limit: TypeAlias = Annotated[int, Meta(ge=1, le=1000)]

# --- namespaces


class NamespaceBody(msgspec.Struct, frozen=True):
    """A namespace and its settings."""

    name: str
    unhandled: Literal["keep", "dead_letter"]
    """What becomes of events that no node handles."""
    metadata: Object
    queues: int
    """How many it has."""
    created_at: str


class NamespaceList(msgspec.Struct, frozen=True):
    """The namespaces, by name."""

    namespaces: list[NamespaceBody]


class NewNamespace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A namespace to make."""

    name: Name
    metadata: Object | None = None


class NamespaceChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings to change; null brings a default back, and what is not named stays as it is."""

    unhandled: Literal["keep", "dead_letter"] | UnsetType | None = UNSET
    metadata: Object | UnsetType | None = UNSET


async def list_namespaces(call: Call) -> Response:
    """The namespaces that the caller may know of, by name."""
    return answer(NamespaceList(await _namespaces(call)))


async def create_namespace(call: Call) -> Response:
    """Make a namespace with its queue `main`: 201, or 200 if it is there."""
    body: NewNamespace = call.body
    if not call.caller.may_see(body.name):
        raise _not_allowed()
    is_new = await call.client.create_namespace(body.name, metadata=body.metadata, actor=call.actor)
    headers = {"Location": f"/namespaces/{quote(body.name, safe='')}"}
    return answer(await _namespace(call, body.name), 201 if is_new else 200, headers)


async def show_namespace(call: Call) -> Response:
    """One namespace."""
    return answer(await _namespace(call, call.namespace))


async def change_namespace(call: Call) -> Response:
    """Change the settings of a namespace that are named."""
    await call.client.change_namespace(call.namespace, actor=call.actor, **changes(call.body))
    return await show_namespace(call)


async def delete_namespace(call: Call) -> Response:
    """Delete a namespace with its queues, its events and its log."""
    query: Deletion = call.query
    await call.client.delete_namespace(
        call.namespace, with_deliveries=query.with_deliveries, actor=call.actor
    )
    return Response(status_code=204)


async def _namespaces(call: Call) -> list[NamespaceBody]:
    return [
        NamespaceBody(
            one.name, one.unhandled, dict(one.metadata), one.queues, moment(one.created_at)
        )
        for one in await call.client.namespaces()
        if call.caller.may_see(one.name)
    ]


async def _namespace(call: Call, name: str) -> NamespaceBody:
    for one in await _namespaces(call):
        if one.name == name:
            return one
    raise NamespaceNotFound(f"there is no namespace {quoted(name)}")


def _not_allowed() -> Refusal:
    return Refusal(
        403,
        "namespace_not_allowed",
        "The token is limited to namespaces, and this is none of them.",
    )


# --- schedules


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


async def list_schedules(call: Call) -> Response:
    """The schedules of a namespace, by name, with their next fires."""
    return answer(ScheduleList([schedule_body(task) for task in await call.client.schedules()]))


async def create_schedule(call: Call) -> Response:
    """Publish an event by the clock. A schedule of this name is changed; one that says the same is left as it is: 201
    either way."""
    body: NewSchedule = call.body
    made = await _schedule(call, msgspec.structs.asdict(body))
    where = location(call, f"/schedules/{quote(made.name, safe='')}")
    return answer(schedule_body(made), 201, where)


async def show_schedule(call: Call) -> Response:
    """One schedule."""
    return answer(schedule_body(await _its_schedule(call)))


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
    return answer(schedule_body(task))


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


def schedule_body(task: ScheduledTask) -> ScheduleBody:
    return ScheduleBody(
        task_id=task.task_id,
        name=task.name,
        cron_expression=task.cron_expression,
        timezone=task.timezone,
        event_type=task.event_type,
        payload=task.payload,
        event=dict(task.event),
        missed=task.missed,
        active=task.active,
        next_fires=[moment(fire) for fire in task.next_fires],
        last_fire_at=moment_or_none(task.last_fire_at),
        created_at=moment(task.created_at),
        updated_at=moment(task.updated_at),
    )


# --- who works


class NodeBody(msgspec.Struct, frozen=True, kw_only=True):
    """A node that has registered."""

    node_id: str
    alive: bool
    """It has not stopped, and its last heartbeat is younger than 90 seconds."""
    display_name: str | None
    description: str | None
    metadata: Object
    handles: Words
    worker_id: str
    """The name its claims have."""
    instance: str
    registered_at: str
    last_heartbeat: str
    stopped_at: str | None


class NodeList(msgspec.Struct, frozen=True):
    """The nodes of a namespace, by id."""

    nodes: list[NodeBody]


async def list_nodes(call: Call) -> Response:
    """The nodes of a namespace that have registered, by id, and whether they are alive."""
    return answer(NodeList([_told(NodeBody, node) for node in await call.client.nodes()]))


class Recently(InQueue, frozen=True, kw_only=True):
    period: Annotated[float, Meta(ge=0, le=31 * 86400)] = 300
    """Seconds."""


class WorkerBody(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who has claims, or has ended an attempt lately."""

    worker_id: str
    holds: int
    oldest_claim_at: str | None
    lease_expires_at: str | None
    """The first of its leases to end."""
    last_seen_at: str | None
    """Its last claim or end; a heartbeat leaves no trace."""
    completed: int
    failed: int
    released: int
    abandoned: int
    since: str
    """What was counted happened since then."""


class WorkerList(msgspec.Struct, frozen=True):
    """The workers of a queue, by name."""

    workers: list[WorkerBody]


async def list_workers(call: Call) -> Response:
    """Who has claims in a queue or ended attempts lately. Nobody registers: it is what leases and log say."""
    query: Recently = call.query
    workers = await call.client.workers(query.period)
    return answer(WorkerList([_told(WorkerBody, worker) for worker in workers]))


# --- dead letters


class Letters(InQueue, frozen=True, kw_only=True):
    types: tuple[str, ...] | None = None
    """A type may hold asterisks."""
    fingerprint: str | None = None
    """Only those of one kind of error."""
    since: Moment | None = None
    until: Moment | None = None
    limit: Limit = 20
    before: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    """Only events with lower ids, to page on."""
    payload: bool = False


class LetterBody(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery that used up its attempts, or was given up, and why."""

    id: int
    type: str
    title: str
    description: str | None
    tags: str
    payload: Any | Absent
    priority: int
    status: Literal["FAILED", "COMPLETED_WITH_ERRORS"]
    reason: str
    error: str | None
    fingerprint: str | None
    """The same for errors of one kind."""
    attempts: int
    retry_count: int
    crashes: int
    max_retries: int
    created_at: str
    died_at: str
    key: str | None
    version: str | None
    source: dict[str, str] | None
    correlation_id: str | None
    causation_id: str | None
    trace_id: str | None
    producer: str | None
    scheduled_task_id: str | None
    scheduled_for: str | None
    backoff: Object | None


class LetterList(msgspec.Struct, frozen=True):
    """Dead letters, the newest event first."""

    dead_letters: list[LetterBody]


async def list_dead_letters(call: Call) -> Response:
    """The dead letters of a queue, the newest event first."""
    query: Letters = call.query
    letters = await call.client.dead_letters(
        types=query.types,
        fingerprint=query.fingerprint,
        since=query.since,
        until=query.until,
        limit=query.limit,
        before=query.before,
        payload=query.payload,
    )
    return answer(LetterList([letter_body(letter, payload=query.payload) for letter in letters]))


async def show_dead_letter(call: Call) -> Response:
    """One dead letter, with its payload, why it died and what it came from."""
    return answer(letter_body(await call.client.dead_letter(call.event_id), payload=True))


class Groups(InQueue, frozen=True, kw_only=True):
    limit: Limit = 100


class GroupBody(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters whose errors are of one kind."""

    fingerprint: str | None
    message: str
    """What the last one said."""
    types: Words
    letters: int
    first_died_at: str
    last_died_at: str
    sample_ids: list[int]
    """The three that died last."""


class GroupList(msgspec.Struct, frozen=True):
    """Kinds of errors, the most frequent first."""

    groups: list[GroupBody]


async def list_dead_letter_groups(call: Call) -> Response:
    """The dead letters of a queue by kind of error, the most frequent kind first."""
    query: Groups = call.query
    groups = await call.client.dead_letter_groups(limit=query.limit)
    return answer(GroupList([_told(GroupBody, group) for group in groups]))


class Redrive(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which dead letters: all, or some by id, type or kind of error."""

    ids: list[Id] | None = None
    types: Filter | None = None
    fingerprint: str | None = None
    rate: Annotated[float, Meta(ge=0.000001, le=1000000)] | None = None
    """At most so many a second."""
    reason: str = ""


async def redrive(call: Call) -> Response:
    """Make dead letters of a queue deliveries again, the longest dead first. If it takes long, a part is done, and
    `more` says so: ask again."""
    body: Redrive = call.body

    def step(last: statements.Step | None) -> statements.Statement[statements.Step]:
        return statements.redrive(
            *(call.namespace, call.queue, body.ids, body.types, body.fingerprint, body.rate),
            *(body.reason, call.actor, last),
        )

    return answer(await take_steps(call, step))


def letter_body(letter: DeadLetter, *, payload: bool) -> LetterBody:
    known = msgspec.structs.asdict(letter)
    return LetterBody(
        **{
            **{name: _plain(value) for name, value in known.items()},
            "tags": tag_string(letter.tags),
            "payload": letter.payload if payload else UNSET,
        }
    )


# --- who administered what


class Administered(Query, frozen=True, kw_only=True):
    namespace: str | None = None
    """Without one: everywhere."""
    limit: Limit = 100
    before: Annotated[int, Meta(ge=0, le=MAX_ID)] | None = None
    """Only entries with lower ids, to page on."""


class AdminActionBody(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was done on purpose, and by whom."""

    id: int
    created_at: str
    namespace: str | None
    """Null: it concerned the whole installation, or the namespace has been deleted."""
    actor: str
    action: str
    target: str | None
    """What it was done to: a queue, a schedule, an event …"""
    details: Object


class AdminLog(msgspec.Struct, frozen=True):
    """What was done on purpose, the newest first."""

    entries: list[AdminActionBody]


async def admin_log(call: Call) -> Response:
    """What was done on purpose and by whom, the newest first: in a namespace, or everywhere."""
    query: Administered = call.query
    if query.namespace is None and call.caller.namespaces is not None:
        raise _not_allowed()
    entries = await call.client.admin_log(
        everywhere=query.namespace is None, limit=query.limit, before=query.before
    )
    return answer(AdminLog([_told(AdminActionBody, entry) for entry in entries]))


def _told(kind: type[Any], record: msgspec.Struct) -> Any:
    """A record of ours in the shape in which it travels."""
    return kind(**{name: _plain(value) for name, value in msgspec.structs.asdict(record).items()})


def _plain(value: Any) -> Any:
    match value:
        case datetime():
            return moment(value)
        case tuple():
            return list(value)
    return value


_NAMESPACE, _SCHEDULE = "/namespaces/{namespace}", "/schedules/{name}"
OPERATIONS = (
    Operation("GET", "/namespaces", list_namespaces, "read", Query, answers={200: NamespaceList}),
    Operation(
        *("POST", "/namespaces", create_namespace, "admin", Query),
        body=NewNamespace,
        answers={201: NamespaceBody, 200: NamespaceBody},
    ),
    Operation("GET", _NAMESPACE, show_namespace, "read", Query, answers={200: NamespaceBody}),
    Operation(
        *("PATCH", _NAMESPACE, change_namespace, "admin", Query),
        body=NamespaceChange,
        answers={200: NamespaceBody},
    ),
    Operation("DELETE", _NAMESPACE, delete_namespace, "admin", Deletion, answers={204: None}),
    Operation(
        *("GET", "/schedules", list_schedules, "read", InNamespace), answers={200: ScheduleList}
    ),
    Operation(
        *("POST", "/schedules", create_schedule, "admin", InNamespace),
        body=NewSchedule,
        body_limit=1024 * 1024 + 64 * 1024,
        answers={201: ScheduleBody},
    ),
    Operation("GET", _SCHEDULE, show_schedule, "read", InNamespace, answers={200: ScheduleBody}),
    Operation(
        *("PATCH", _SCHEDULE, change_schedule, "admin", InNamespace),
        body=ScheduleChange,
        body_limit=1024 * 1024 + 64 * 1024,
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
    Operation("GET", "/nodes", list_nodes, "read", InNamespace, answers={200: NodeList}),
    Operation("GET", "/workers", list_workers, "read", Recently, answers={200: WorkerList}),
    Operation(
        *("GET", "/dead-letters", list_dead_letters, "read", Letters), answers={200: LetterList}
    ),
    Operation(
        *("GET", "/dead-letters/groups", list_dead_letter_groups, "read", Groups),
        answers={200: GroupList},
    ),
    Operation(
        *("POST", "/dead-letters/redrive", redrive, "admin"),
        body=Redrive,
        body_limit=1024 * 1024,
        answers={200: Stepped},
    ),
    Operation("GET", "/dead-letters/{id}", show_dead_letter, "read", answers={200: LetterBody}),
    Operation(*("GET", "/admin-log", admin_log, "admin", Administered), answers={200: AdminLog}),
)
