-- The last outcome of the past hour that was written by a time, which is a little in the past; 0:
-- none.
create or replace function headrace._last_outcome(t timestamptz) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_sort = off
as $$
    select coalesce(
        (select o.id from headrace.outcomes o where o.at between t - interval '1 hour' and t order by o.id desc
         limit 1), 0)
$$;
