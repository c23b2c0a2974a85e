-- Adds a token to `ready`: a delivery of the key may be claimable, see the table keyed.
create or replace function headrace._add_key_token(
    queue int, suspect boolean, priority smallint, route bigint, key text
) returns void
language sql
as $$
    insert into headrace.ready (event, created_at, route, seq, queue, priority, suspect, key)
    values (0, headrace._now(), route, nextval('headrace.ids'), queue, priority, suspect, key)
$$;
