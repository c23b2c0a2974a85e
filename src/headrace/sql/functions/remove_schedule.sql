-- Removes a scheduled task. What it has fired stays. Concurrency: as pause_schedule. Raises QU001, QU010, QU013.
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named.
create or replace function headrace.remove_schedule(namespace text, name text, actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    task headrace.scheduled_tasks := headrace.its_task(remove_schedule.namespace, remove_schedule.name);
begin
    delete from headrace.scheduled_tasks d where d.task_id = task.task_id;
    perform headrace.log_action(task.namespace, remove_schedule.actor, 'remove_schedule', task.name);
end $$;
