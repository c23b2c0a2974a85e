-- Sets the functions that read the months to plan each call anew, once there are more than 24
-- months. A custom plan opens the months that its call needs; a generic plan locks every month and
-- its indexes, and the locks of ten years in 120 sessions exceed PostgreSQL's default lock table.
-- With fewer months a generic plan is quicker. Returns whether it changed something. migrate
-- recreates the functions, and the next upkeep calls this function again.
create or replace function headrace._plan_by_month() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    looking regprocedure;
begin
    if headrace._plans_by_month() or (select count(*) from pg_inherits i
                                      where i.inhparent = 'headrace.events'::regclass) <= 25 then
        return false;
    end if;
    for looking in
        select p.oid from pg_proc p
        where p.pronamespace = 'headrace'::regnamespace
          and p.proname in ('_claimed_events', '_stored_event', '_last_max_retries', '_past_verdicts', '_event_states',
                            'start', '_attempts_by_worker', '_take_waiting', '_cancel_everywhere', '_revive',
                            '_state_events', 'workers', 'event_log', '_delivery_trail', '_why_nowhere',
                            '_is_erased', '_keep_stored')
    loop
        execute format('alter function %s set plan_cache_mode = force_custom_plan', looking);
    end loop;
    execute 'create or replace function headrace._plans_by_month() returns boolean language sql immutable parallel '
            'safe as $f$ select true $f$';
    return true;
end $$;
