-- Removes a scheduled task. The events that it has fired stay. Concurrency: as pause_schedule.
-- Raises QU001, QU010, QU013.
-- actor: the name in the log (see _log_action); default: the caller's role.
create or replace function headrace.remove_schedule(namespace text, name text, actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    task headrace.scheduled_tasks := headrace._task_named(remove_schedule.namespace, remove_schedule.name);
begin
    delete from headrace.scheduled_tasks d where d.task_id = task.task_id;
    perform headrace._log_action(task.namespace, remove_schedule.actor, 'remove_schedule', task.name);
end $$;
