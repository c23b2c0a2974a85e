-- Removes a job of pg_cron, if it is still there.
create or replace function headrace_cron.unschedule(job_id int) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    perform cron.unschedule(job_id::bigint);
exception when others then
    raise warning 'headrace: the job % of pg_cron is not removed: %', job_id, sqlerrm;
end $$;
