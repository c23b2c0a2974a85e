-- Marks this session as awake on a channel that fall_asleep returned, so that publishers no longer
-- notify it. The queue may be gone by now. Returns whether the session was asleep; if not,
-- PostgreSQL also raises a warning. Raises QU001.
create or replace function headrace.wake_up(channel text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if (channel ~ E'^headrace_\\d{1,10}$') is not true then
        raise exception using errcode = 'QU001', message = format('%L is not a channel of fall_asleep', channel);
    end if;
    execute format('unlisten %I', channel);
    return pg_advisory_unlock_shared(headrace._advisory_lock('sleepers'), substr(channel, 10)::int);
end $$;
