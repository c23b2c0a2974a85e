-- Whether a task's instants are computed far ahead, because it is to fire for long with no client
-- there to compute more: where pg_cron ticks and does not run the task itself. Tasks that fire by
-- the second are not: a few hundred instants are soon used up, and each firing would rewrite a
-- longer list.
create or replace function headrace._is_planned_far(task headrace.scheduled_tasks) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select task.job_id is null and task.cron_expression !~ E'^(\\S+ ){5}'
        and exists (select from headrace.optional o where o.name = 'pg_cron')
$$;
