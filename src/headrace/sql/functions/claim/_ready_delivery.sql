-- A delivery as it would stand in `ready`, alone and not in a pack, by the names of its fields. One
-- that was never claimed has no attempts, failures and crashes.
-- PostgreSQL replaces a call by the row itself, so a call costs nothing: no SET clause, one
-- expression.
create or replace function headrace._ready_delivery(
    event bigint, created_at timestamptz, route bigint, seq bigint, queue int, priority smallint,
    attempts int default 0, failures smallint default 0::smallint, crashes smallint default 0::smallint,
    suspect boolean default false, key text default null, ready_at timestamptz default null
) returns headrace.ready
language sql immutable parallel safe
as $$
    select row(event, created_at, route, seq, queue, attempts, priority, failures, crashes, suspect,
               null, key, ready_at)::headrace.ready
$$;
