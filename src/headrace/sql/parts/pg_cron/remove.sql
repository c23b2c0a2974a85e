drop trigger if exists follow_by_pg_cron on headrace.scheduled_tasks;

do $$
begin
    if exists (select from pg_extension where extname = 'pg_cron') then
        perform headrace_cron.unschedule(s.job_id) from headrace.scheduled_tasks s where s.job_id is not null;
        perform cron.unschedule(j.jobid) from cron.job j where j.jobname = 'headrace_tick'
            and j.database = current_database();
    end if;
end $$;

update headrace.scheduled_tasks set job_id = null where job_id is not null;
