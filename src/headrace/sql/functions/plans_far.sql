-- Whether a task's instants are worked out far ahead, because it is to fire for long with nobody there to work out more: where pg_cron
-- ticks and does not run the task itself. Not those that fire by the second: of them, a few hundred are soon used up, and more
-- would be written anew with every one that fires.
create or replace function headrace.plans_far(task headrace.scheduled_tasks) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select task.job_id is null and task.cron_expression !~ E'^(\\S+ ){5}'
        and exists (select from headrace.optional o where o.name = 'pg_cron')
$$;
