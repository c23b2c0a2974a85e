-- The events that have an unfinished delivery, in one statement over all places; only those created
-- before a time.
create or replace function headrace._unfinished_events(
    before timestamptz default 'infinity'
) returns table (event bigint)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select d.event from headrace.deliveries d where d.created_at < _unfinished_events.before
$$;
