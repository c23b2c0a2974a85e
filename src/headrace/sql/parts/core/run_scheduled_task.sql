-- Publishes a scheduled task's event now and returns its number; for a task that is paused or gone
-- it publishes nothing and returns null.
-- Raises the errors of publish.
create or replace function core.run_scheduled_task(p_task_id uuid) returns bigint
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select headrace.run_scheduled_task(p_task_id) $$;
