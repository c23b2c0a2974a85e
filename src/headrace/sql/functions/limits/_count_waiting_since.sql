-- How many deliveries of a pair of priority and route have waited since a time, of the first `most`
-- and from `low` on.
create or replace function headrace._count_waiting_since(
    q headrace.queues, pair headrace.hint, low bigint, since timestamptz, most int
) returns int
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    select least(coalesce(sum(w.size) filter (where w.since <= _count_waiting_since.since), 0), most)::int
    from (
        select coalesce(cardinality(r.pack), 1) as size, coalesce(r.ready_at, (
            select k.created_at from headrace.keyed k where k.queue = q.id and k.key = r.key order by k.event limit 1),
            r.created_at) as since
        from headrace.ready r
        where r.queue = q.id and not r.suspect and r.priority = pair.priority and r.route = pair.route
          and r.seq >= _count_waiting_since.low
        order by r.seq limit most
    ) w
$$;
