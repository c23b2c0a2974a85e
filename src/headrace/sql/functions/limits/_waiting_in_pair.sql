-- The deliveries that wait in a pair of priority and route of a queue, in its first 1,000 rows, and
-- since when the first has been ready.
create or replace function headrace._waiting_in_pair(
    queue int, suspect boolean, priority smallint, route bigint, out waiting bigint, out since timestamptz
)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    select sum(r.size), min(r.since)
    from (
        select coalesce(cardinality(r.pack), 1) as size, coalesce(r.ready_at, r.created_at) as since
        from headrace.ready r
        where r.queue = _waiting_in_pair.queue and r.suspect = _waiting_in_pair.suspect
          and r.priority = _waiting_in_pair.priority and r.route = _waiting_in_pair.route
        order by r.seq limit 1000
    ) r
$$;
