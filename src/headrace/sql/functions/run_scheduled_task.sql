-- run_schedule by the task's id, for a scheduler outside (pg_cron): a task that is paused or gone publishes nothing and gives null.
-- Raises what publish raises.
create or replace function headrace.run_scheduled_task(task_id uuid) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    task headrace.scheduled_tasks;
begin
    update headrace.scheduled_tasks u set updated_at = headrace.now()
    where u.task_id = run_scheduled_task.task_id and u.active
    returning * into task;
    return case when task.task_id is not null then (headrace.emit_scheduled(task, '{}'))[1] end;
end $$;
