-- The job of pg_cron that runs a task from now on: made, or changed if the task has one; null:
-- pg_cron cannot run the task, or is installed in another database. Then the tick fires it, as it
-- does everywhere.
create or replace function headrace_cron.schedule(task headrace.scheduled_tasks) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    space text := (select n.name from headrace.namespaces n where n.id = task.namespace);
begin
    if not task.active or not exists (select from pg_extension where extname = 'pg_cron')
       or not headrace_cron.can_run(task.cron_expression, task.timezone) then
        return null;
    end if;
    return cron.schedule(
        format('%s_%s_%s', space, task.name, task.task_id),
        task.cron_expression,
        format('select headrace.run_scheduled_task(%L, by_clock => true)', task.task_id));
exception when others then
    raise warning 'headrace: pg_cron does not take the schedule %, which a tick will fire: %', task.name, sqlerrm;
    return null;
end $$;
