-- Removes a scheduled task. What it has fired stays. Concurrency: as pause_schedule. Raises QU010, QU013.
create or replace function headrace.remove_schedule(namespace text, name text) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    task headrace.scheduled_tasks := headrace.its_task(remove_schedule.namespace, remove_schedule.name);
begin
    delete from headrace.scheduled_tasks d where d.task_id = task.task_id;
end $$;
