-- Keeps pg_cron's jobs in step with the tasks, in the transaction that makes, changes, pauses,
-- resumes or removes a task. The trigger runs after the row, because scheduling a task again is an
-- insert that finds its row there already.
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
