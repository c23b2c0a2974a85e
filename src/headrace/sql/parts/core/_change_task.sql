-- The trigger for an update of core.scheduled_tasks: pauses or resumes the task (active), or
-- changes when and what it publishes, through the engine. A column that the statement does not
-- change keeps its current value. Raises QU001, and the errors of schedule_task.
create or replace function core._change_task() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    task headrace.scheduled_tasks;
begin
    if (new.task_id, new.namespace, new.name, new.job_id, new.created_at)
       is distinct from (old.task_id, old.namespace, old.name, old.job_id, old.created_at) then
        raise exception using errcode = 'QU001',
            message = 'task_id, namespace, name, job_id and created_at of core.scheduled_tasks are not changed: '
                      'delete the task and insert another';
    elsif new.active is null then
        raise exception using errcode = 'QU001', message = 'active of core.scheduled_tasks is true or false';
    end if;
    perform core._check_is_now('updated_at', new.updated_at, old.updated_at);
    task := headrace._task_named(old.namespace, old.name);
    if (new.cron_expression, new.timezone, new.event_type, new.payload)
       is distinct from (old.cron_expression, old.timezone, old.event_type, old.payload) then
        perform headrace.schedule_task(
            old.namespace, old.name,
            case when new.cron_expression is distinct from old.cron_expression then new.cron_expression
                 else task.cron_expression end,
            case when new.event_type is distinct from old.event_type then new.event_type else task.event_type end,
            case when new.payload is distinct from old.payload then new.payload else task.payload end,
            case when new.timezone is distinct from old.timezone then coalesce(new.timezone, 'UTC')
                 else task.timezone end,
            task.missed, task.event);
    end if;
    if new.active and not old.active then
        perform headrace.resume_schedule(old.namespace, old.name);
    elsif old.active and not new.active then
        perform headrace.pause_schedule(old.namespace, old.name);
    end if;
    select t.* into new from core.scheduled_tasks t where t.namespace = old.namespace and t.name = old.name;
    return new;
end $$;
