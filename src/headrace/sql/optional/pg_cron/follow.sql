-- Keeps pg_cron's jobs as the tasks are, in the transaction that changes those: made, changed, paused, resumed, removed. After the row,
-- because a task that is scheduled again is an insert that finds its row there already.
create or replace function headrace_cron.follow() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    job int;
begin
    if tg_op <> 'DELETE' then
        job := headrace_cron.schedule(new);
    end if;
    if tg_op <> 'INSERT' and old.job_id <> coalesce(job, 0) then
        perform headrace_cron.unschedule(old.job_id);
    end if;
    if tg_op <> 'DELETE' and job is distinct from new.job_id then
        update headrace.scheduled_tasks u set job_id = job where u.task_id = new.task_id;
    end if;
    return null;
end $$;
