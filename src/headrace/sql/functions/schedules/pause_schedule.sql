-- Pauses a scheduled task: it does not fire until resume_schedule, and the instants in between do
-- not count as missed.
-- Concurrency: waits for a tick that is firing the task; once this has committed, the task no
-- longer fires.
-- Raises QU001, QU010, QU013.
-- actor: the name in the log (see _log_action); default: the caller's role.
create or replace function headrace.pause_schedule(namespace text, name text, actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    task headrace.scheduled_tasks := headrace._task_named(pause_schedule.namespace, pause_schedule.name);
begin
    update headrace.scheduled_tasks u set active = false, due_at = null, updated_at = headrace._now()
    where u.task_id = task.task_id and u.active;
    if found then
        perform headrace._log_action(task.namespace, pause_schedule.actor, 'pause_schedule', task.name);
    end if;
end $$;
