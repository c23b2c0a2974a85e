-- The id of the first event or outcome of a namespace from a number on; null: there is none.
create or replace function headrace._next_log_row(namespace int, low bigint) returns bigint
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    select least(
        (select e.id from headrace.events e where e.id >= low and e.namespace = _next_log_row.namespace
         order by e.id limit 1),
        (select o.id from headrace.outcomes o where o.id >= low and o.namespace = _next_log_row.namespace
         order by o.id limit 1))
$$;
