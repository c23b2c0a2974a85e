-- Since when the first delivery of a pair of priority and route has waited.
create or replace function headrace._first_waits_since(
    q headrace.queues, priority smallint, route bigint, low bigint
) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    select coalesce(r.ready_at, (
        select k.created_at from headrace.keyed k where k.queue = q.id and k.key = r.key order by k.event limit 1),
        r.created_at)
    from headrace.ready r
    where r.queue = q.id and not r.suspect and r.priority = _first_waits_since.priority
      and r.route = _first_waits_since.route and r.seq >= _first_waits_since.low
    order by r.seq limit 1
$$;
