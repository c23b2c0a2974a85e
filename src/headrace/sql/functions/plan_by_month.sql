-- Has the functions that look into the months plan each call anew, once there are more than 24 of them: a plan that is made for one call
-- opens the months that the call needs, a plan for all calls locks every month and its indexes, and the locks of ten years in 120 sessions
-- are more than PostgreSQL has room for by default. Below that a plan for all calls is quicker. Returns whether it changed something.
-- migrate makes the functions anew, and the next upkeep comes here again.
create or replace function headrace.plan_by_month() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    looking regprocedure;
begin
    if headrace.by_month() or (select count(*) from pg_inherits i where i.inhparent = 'headrace.events'::regclass) <= 25 then
        return false;
    end if;
    for looking in
        select p.oid from pg_proc p
        where p.pronamespace = 'headrace'::regnamespace
          and p.proname in ('bodies', 'body', 'last_policy', 'judge', 'standing', 'start', 'meant', 'take_waiting', 'call_off', 'revive',
                            'state_events', 'workers', 'event_log')
    loop
        execute format('alter function %s set plan_cache_mode = force_custom_plan', looking);
    end loop;
    execute 'create or replace function headrace.by_month() returns boolean language sql immutable parallel safe as $f$ select true $f$';
    return true;
end $$;
