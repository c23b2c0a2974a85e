-- The trigger for a delete from core.scheduled_tasks: removes the task, and its job of pg_cron with
-- it.
create or replace function core._remove_task() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace.remove_schedule(old.namespace, old.name);
    return old;
end $$;
