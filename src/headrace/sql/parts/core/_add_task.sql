-- The trigger for an insert into core.scheduled_tasks: schedules the task through the engine, under
-- the id that the insert names, if it names one. Raises QU001 for columns that the engine decides,
-- 23505 for a name or an id that is taken, and the errors of schedule_task.
create or replace function core._add_task() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    made uuid;
begin
    if new.job_id is not null then
        raise exception using errcode = 'QU001',
            message = 'job_id of core.scheduled_tasks is Headrace''s: leave it out, and schedule no job for the '
                      'task, which would publish every event twice';
    elsif coalesce(new.created_at, new.updated_at) is not null then
        raise exception using errcode = 'QU001',
            message = 'created_at and updated_at of core.scheduled_tasks are the database''s: leave them out';
    end if;
    perform headrace._check_access(new.namespace);
    if exists (select from headrace.scheduled_tasks s join headrace.namespaces n on n.id = s.namespace
               where n.name = new.namespace and s.name = new.name) then
        raise exception using errcode = '23505',
            message = format('the namespace %L has a scheduled task %L: update it, or delete it first',
                             new.namespace, new.name);
    end if;
    made := (headrace.schedule_task(
        new.namespace, new.name, new.cron_expression, coalesce(new.event_type, 'event'), new.payload,
        coalesce(new.timezone, 'UTC'))).task_id;
    if new.task_id is not null then
        -- active too: so a job of pg_cron, which has the id in its name, is remade
        update headrace.scheduled_tasks u set task_id = new.task_id, active = u.active where u.task_id = made;
    end if;
    if not new.active then
        perform headrace.pause_schedule(new.namespace, new.name);
    end if;
    select t.* into new from core.scheduled_tasks t where t.namespace = new.namespace and t.name = new.name;
    return new;
end $$;
