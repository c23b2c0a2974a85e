"""Schedules: events that are published by the clock."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from headrace.engine.cron import FEWEST, Schedule, Unplanned, plan
from headrace.engine.encoding import encode_payload, header
from headrace.engine.look import LookVerbs
from headrace.engine.statement import Row, Statement, Steps, ask, done, timed
from headrace.errors import InvalidInput
from headrace.model import Backoff, Event, Missed, NewEvent, ScheduledTask, told

logger = logging.getLogger("headrace")


# The instants are whole seconds, and as numbers they look the same to every driver.
_SELECT_TASKS = """\
select task_id::pg_catalog.text, name, cron_expression, timezone, event_type, payload::pg_catalog.text, event::pg_catalog.text, missed, active,
       array(select pg_catalog.date_part('epoch', fire)::bigint from pg_catalog.unnest(next_fires) fire
             where fire operator(pg_catalog.>=) '0002-01-01' and fire operator(pg_catalog.<=) '9999-01-01'),
       pg_catalog.timestamptz_send(last_fire_at), pg_catalog.timestamptz_send(created_at),
       pg_catalog.timestamptz_send(updated_at), version, pg_catalog.timestamptz_send(planned_until),
       pg_catalog.timestamptz_send(at), far
from headrace."""


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
    """False: the schedule was changed meanwhile, or removed."""
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


class ScheduleVerbs(LookVerbs):
    """Verbs about schedules."""

    def schedule_task(
        self,
        name: str,
        cron: str,
        event_type: str = "event",
        payload: Any = None,
        *,
        timezone: str = "UTC",
        missed: Missed = "coalesce",
        tags: Sequence[str] | None = None,
        priority: int | None = None,
        key: str | None = None,
        max_retries: int | None = None,
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
        title: str | None = None,
        description: str | None = None,
        version: str | None = None,
        source: Mapping[str, str] | None = None,
        headers: Mapping[str, Any] | None = None,
        unique: str | None = None,
        actor: str | None = None,
    ) -> Steps[ScheduledTask]:
        """Publish an event by the clock: once at every instant of a cron expression of five fields,
        or six with seconds first. A schedule of this name is changed; an equal one is left as it
        is, and a paused one stays paused, so every process may call this when it starts. With a
        `unique` key an instant adds no event while the one before is unfinished. Needs the extra
        `schedules`."""
        event = NewEvent(
            event_type,
            payload,
            tags=tags,
            priority=priority,
            key=key,
            max_retries=max_retries,
            max_attempts=max_attempts,
            backoff=backoff,
            title=title,
            description=description,
            version=version,
            source=source,
            headers=headers,
            unique=unique,
        )
        Schedule(cron, timezone)  # a wrong one is refused before it is sent
        task = NewTask(
            name=name,
            cron_expression=cron,
            event_type=event.type,
            payload=encode_payload(event.payload).decode(),
            timezone=timezone,
            missed=missed,
            event=header(event),
            actor=actor or self.worker,
        )
        made = yield from ask(schedule_task(self.namespace, task))
        return (yield from self._plan(made))

    def _plan(self, unplanned: Unplanned) -> Steps[ScheduledTask]:
        task = unplanned.task
        known = unplanned.planned_until
        coming = [fire for fire in task.next_fires if unplanned.at < fire <= known]
        if not task.active or len(coming) >= FEWEST:
            return task
        fires = plan(unplanned)
        yield plan_task(self.namespace, task.task_id, unplanned.version, fires)
        return msgspec.structs.replace(task, next_fires=(*task.next_fires, *fires))

    def plan_schedules(self) -> Steps[int]:
        """Work out the next instants of the schedules of this namespace that have few left, and
        store them for any tick to fire; returns how many schedules those were. Nodes do it by
        themselves. Needs the extra `schedules`."""
        planned = 0
        for unplanned in (yield from ask(tasks_to_plan(self.namespace))):
            task = unplanned.task
            try:
                fires = plan(unplanned)
            except InvalidInput as error:
                logger.warning("the schedule %s will not fire: %s", task.name, error)
                continue
            yield plan_task(self.namespace, task.task_id, unplanned.version, fires)
            planned += 1
        return planned

    def schedules(self) -> Steps[list[ScheduledTask]]:
        """The schedules of this namespace, by name, with their next fires."""
        return ask(schedules(self.namespace))

    def pause_schedule(self, name: str, *, actor: str | None = None) -> Steps[None]:
        """Fire no more, until `resume_schedule`; instants that pass meanwhile do not count as
        missed."""
        return ask(pause_schedule(self.namespace, name, actor or self.worker))

    def resume_schedule(self, name: str, *, actor: str | None = None) -> Steps[ScheduledTask]:
        """Fire again, from now on."""
        who = actor or self.worker
        resumed = yield from ask(resume_schedule(self.namespace, name, who))
        return (yield from self._plan(resumed))

    def run_schedule(self, name: str, *, actor: str | None = None) -> Steps[Event]:
        """Publish the event of a schedule now, also of a paused one; its next instants stay as they
        are."""
        who = actor or self.worker
        id = yield from ask(run_schedule(self.namespace, name, who))
        return (yield from self.event(id))

    def remove_schedule(self, name: str, *, actor: str | None = None) -> Steps[None]:
        """Remove a schedule; the events that it has published stay."""
        return ask(remove_schedule(self.namespace, name, actor or self.worker))
