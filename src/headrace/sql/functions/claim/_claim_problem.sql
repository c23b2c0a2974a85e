-- The problem of a claim's arguments; the caller knows that one of them is wrong.
create or replace function headrace._claim_problem(max_events int, lease interval, worker text) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case
        when max_events is null or max_events not between 1 and 1000
            then 'QU001 max_events is a number from 1 to 1000'
        when lease < interval '0.1 seconds' or lease > interval '7 days'
            then 'QU001 a lease lasts from 0.1 seconds to 7 days: a worker could not renew a shorter one in time'
        when length(worker) > 200
            then 'QU001 the name of a worker has at most 200 characters'
        else 'QU001 dispatch is atomic or collect'
    end
$$;
