-- A task as `schedules` lists it: of the instants that are stored ahead, the first 200. One that was planned by a clock that was ahead
-- is planned up to now: there is a gap in that plan.
create or replace function headrace.listed_task(task headrace.scheduled_tasks, t timestamptz) returns headrace.listed_task
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select task.task_id, task.name, task.cron_expression, task.timezone, task.event_type, headrace.readable(task.payload), headrace.readable(task.event), task.missed,
           task.active, task.next_fires[:200], task.last_fire_at, task.created_at, task.updated_at, task.version,
           case when task.planned_at > t + interval '1 minute' then least(task.planned_until, t) else task.planned_until end, t,
           headrace.plans_far(task)
$$;
