-- A task as `schedules` lists it, with the first 200 of the instants stored ahead. A task that was
-- planned by a clock that was ahead counts as planned up to now: that plan has a gap.
create or replace function headrace._task_row(task headrace.scheduled_tasks, t timestamptz) returns headrace.listed_task
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select task.task_id, task.name, task.cron_expression, task.timezone, task.event_type,
           headrace._readable_json(task.payload), headrace._readable_json(task.event), task.missed,
           task.active, task.next_fires[:200], task.last_fire_at, task.created_at, task.updated_at, task.version,
           case when task.planned_at > t + interval '1 minute' then least(task.planned_until, t)
                else task.planned_until end, t,
           headrace._is_planned_far(task)
$$;
