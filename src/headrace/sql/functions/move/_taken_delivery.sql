-- A delivery that its caller has just taken out of its place, by the names of its fields. A
-- delivery that was in no claim has no lease, position, picked_at and worker.
-- PostgreSQL replaces a call by the row itself, so a call costs nothing: no SET clause, one
-- expression.
create or replace function headrace._taken_delivery(
    event bigint, attempt int default null, created_at timestamptz default null, failures smallint default null,
    crashes smallint default null, suspect boolean default null, key text default null, item int default 0,
    lease bigint default null, "position" smallint default null, picked_at timestamptz default null,
    worker text default null
) returns headrace.taken
language sql immutable parallel safe
as $$
    select row(item, event, attempt, created_at, failures, crashes, suspect,
               lease, "position", picked_at, worker, key)::headrace.taken
$$;
