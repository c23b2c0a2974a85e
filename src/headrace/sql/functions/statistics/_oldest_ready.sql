-- When the oldest delivery that waits to be claimed was published: the first of each pair of
-- priority and route, of those that came back and of those with ordering keys. With more than 1,000
-- pairs, it is the oldest of 1,000 pairs.
create or replace function headrace._oldest_ready(queue int) returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    select min(first.created_at)
    from (
        select r.created_at
        from headrace._ready_routes(_oldest_ready.queue, 1000) p
        cross join lateral (
            select r.created_at from headrace.ready r
            where r.queue = _oldest_ready.queue and r.suspect = p.suspect and r.priority = p.priority
              and r.route = p.route
              and r.key is null
            order by r.seq limit 1
        ) r
        union all
        (select r.created_at from headrace.ready r
         where r.queue = _oldest_ready.queue and r.seq <> r.event and r.key is null order by r.event limit 1)
        union all
        (select k.created_at from headrace.keyed k where k.queue = _oldest_ready.queue order by k.event limit 1)
    ) first
$$;
