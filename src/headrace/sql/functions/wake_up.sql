-- This session no longer sleeps on a channel that fall_asleep gave, so that nobody goes to the trouble of waking it. Its queue
-- may be gone by now. Returns whether it was asleep; if not, PostgreSQL warns of it, too. Raises QU001.
create or replace function headrace.wake_up(channel text) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if (channel ~ E'^headrace_\\d{1,10}$') is not true then
        raise exception using errcode = 'QU001', message = format('%L is no channel that fall_asleep gives', channel);
    end if;
    execute format('unlisten %I', channel);
    return pg_advisory_unlock_shared(headrace.advisory_lock('sleepers'), substr(channel, 10)::int);
end $$;
