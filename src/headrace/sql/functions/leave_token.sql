-- Leaves a token in `ready`: some delivery of the key may be claimable, see the table keyed.
create or replace function headrace.leave_token(queue int, suspect boolean, priority smallint, route bigint, key text) returns void
language sql
as $$
    insert into headrace.ready (event, created_at, route, seq, queue, priority, suspect, key)
    values (0, headrace.now(), route, nextval('headrace.ids'), queue, priority, suspect, key)
$$;
