"""Nodes that register, and schedules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from headrace.encoding import encode
from headrace.model import (
    NodeInfo,
    ScheduledTask,
    UnhandledType,
    told,
)
from headrace.statements.base import (
    Row,
    Statement,
    done,
    timed,
)


def register_node(
    namespace: str,
    node_id: str,
    instance: str,
    display_name: str | None,
    description: str | None,
    metadata: Mapping[str, Any],
    handles: list[str],
    worker: str,
) -> Statement[str]:
    """Gives the node's id as it is kept: what is not of `A-Za-z0-9._:-` becomes a hyphen."""
    return Statement(
        "select headrace.register_node(%s, %s, %s::pg_catalog.uuid, %s, %s, %s::pg_catalog.jsonb, %s::pg_catalog.text[], %s)",
        (
            *(namespace, node_id, instance, display_name, description),
            *(encode(metadata, "the metadata of a node").decode(), handles, worker),
        ),
        lambda rows: rows[0][0],
    )


def touch_node_heartbeat(
    namespace: str, node_id: str, instance: str
) -> Statement[Literal["alive", "replaced", "missing"]]:
    return Statement(
        "select headrace.touch_node_heartbeat(%s, %s, %s::pg_catalog.uuid)",
        (namespace, node_id, instance),
        lambda rows: rows[0][0],
    )


def unregister_node(namespace: str, node_id: str, instance: str) -> Statement[bool]:
    return Statement(
        "select headrace.unregister_node(%s, %s, %s::pg_catalog.uuid)",
        (namespace, node_id, instance),
        lambda rows: rows[0][0],
    )


def nodes(namespace: str) -> Statement[list[NodeInfo]]:
    return Statement(
        "select node_id, alive, display_name, description, metadata::pg_catalog.text, handles, worker, "
        "instance::pg_catalog.text, pg_catalog.timestamptz_send(registered_at), "
        "pg_catalog.timestamptz_send(started_at), "
        "pg_catalog.timestamptz_send(last_heartbeat), pg_catalog.timestamptz_send(stopped_at) "
        "from headrace.nodes(%s)",
        (namespace,),
        lambda rows: [_node(row) for row in rows],
    )


def unhandled_types(namespace: str) -> Statement[list[UnhandledType]]:
    return Statement(
        "select queue, type, deliveries, pg_catalog.timestamptz_send(oldest_at), "
        "pg_catalog.timestamptz_send(since) from headrace.unhandled_types(%s)",
        (namespace,),
        lambda rows: [UnhandledType(*timed(row, 3, 4)) for row in rows],
    )


def _node(row: Row) -> NodeInfo:
    values = timed(row, 8, 9, 10, 11)
    values[4], values[5] = told(row[4]), tuple(row[5])
    return NodeInfo(*values)


# The instants are whole seconds, and as numbers they look the same to every driver.
_SELECT_TASKS = """\
select task_id::pg_catalog.text, name, cron_expression, timezone, event_type, payload::pg_catalog.text, event::pg_catalog.text, missed, active,
       array(select pg_catalog.date_part('epoch', fire)::bigint from pg_catalog.unnest(next_fires) fire
             where fire operator(pg_catalog.>=) '0002-01-01' and fire operator(pg_catalog.<=) '9999-01-01'),
       pg_catalog.timestamptz_send(last_fire_at), pg_catalog.timestamptz_send(created_at),
       pg_catalog.timestamptz_send(updated_at), version, pg_catalog.timestamptz_send(planned_until),
       pg_catalog.timestamptz_send(at), far
from headrace."""


class Unplanned(NamedTuple):
    """A task, and what must be known to work out its next instants."""

    task: ScheduledTask
    version: int
    planned_until: datetime
    at: datetime
    """The database's time when it answered."""
    far: bool = False
    """As many instants as may be are wanted."""


def _unplanned(row: Row) -> Unplanned:
    *values, version, planned_until, at, far = timed(row, 10, 11, 12, 14, 15)
    values[5], values[6] = told(values[5]), told(values[6])
    values[9] = tuple(datetime.fromtimestamp(fire, UTC) for fire in values[9])
    return Unplanned(ScheduledTask(*values), version, planned_until, at, far)


class NewTask(NamedTuple):
    """The arguments of schedule_task, in the engine's order."""

    name: str
    cron_expression: str
    event_type: str
    payload: str
    timezone: str
    missed: str
    event: str
    actor: str


def schedule_task(namespace: str, task: NewTask) -> Statement[Unplanned]:
    return Statement(
        _SELECT_TASKS
        + "schedule_task(%s, %s, %s, %s, %s::pg_catalog.jsonb, %s, %s, %s::pg_catalog.jsonb, %s)",
        (namespace, *task),
        lambda rows: _unplanned(rows[0]),
    )


def tasks_to_plan(namespace: str) -> Statement[list[Unplanned]]:
    return Statement(
        _SELECT_TASKS + "tasks_to_plan(%s)",
        (namespace,),
        lambda rows: [_unplanned(row) for row in rows],
    )


def plan_task(
    namespace: str, task_id: str, version: int, next_fires: Iterable[datetime]
) -> Statement[bool]:
    """False: it has become another schedule, or is gone."""
    fires = f"{{{','.join(fire.isoformat() for fire in next_fires)}}}"
    return Statement(
        "select headrace.plan_task(%s, %s::pg_catalog.uuid, %s::int, %s::pg_catalog.timestamptz[])",
        (namespace, task_id, version, fires),
        lambda rows: rows[0][0],
    )


def schedules(namespace: str) -> Statement[list[ScheduledTask]]:
    return Statement(
        _SELECT_TASKS + "schedules(%s)",
        (namespace,),
        lambda rows: [_unplanned(row).task for row in rows],
    )


def pause_schedule(namespace: str, name: str, actor: str) -> Statement[None]:
    return done("headrace.pause_schedule(%s, %s, %s)", namespace, name, actor)


def resume_schedule(namespace: str, name: str, actor: str) -> Statement[Unplanned]:
    return Statement(
        _SELECT_TASKS + "resume_schedule(%s, %s, %s)",
        (namespace, name, actor),
        lambda rows: _unplanned(rows[0]),
    )


def run_schedule(namespace: str, name: str, actor: str) -> Statement[int]:
    return Statement(
        "select headrace.run_schedule(%s, %s, %s)",
        (namespace, name, actor),
        lambda rows: rows[0][0],
    )


def remove_schedule(namespace: str, name: str, actor: str) -> Statement[None]:
    return done("headrace.remove_schedule(%s, %s, %s)", namespace, name, actor)
