-- The pairs of priority and route that a queue has in ready, suspects apart, at most `most`: a
-- loose index scan, which costs by the pair and not by the delivery.
create or replace function headrace._ready_routes(queue int, most int)
returns table (suspect boolean, priority smallint, route bigint)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    with recursive pair as (
        (select r.suspect, r.priority, r.route from headrace.ready r
         where r.queue = _ready_routes.queue order by r.suspect, r.priority, r.route limit 1)
        union all
        select n.suspect, n.priority, n.route
        from pair p
        cross join lateral (
            select r.suspect, r.priority, r.route from headrace.ready r
            where r.queue = _ready_routes.queue and (r.suspect, r.priority, r.route) > (p.suspect, p.priority, p.route)
            order by r.suspect, r.priority, r.route limit 1
        ) n
    )
    select p.suspect, p.priority, p.route from pair p limit most
$$;
