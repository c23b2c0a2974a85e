-- The types of ready deliveries of a queue that no live node of its namespace handles, with their
-- routes. By types alone: a node that handles a type only with certain tags, or in another queue,
-- counts. The function reads at most 10,000 pairs of priority and route. living: the result of
-- _alive_nodes.
create or replace function headrace._unhandled_in_queue(
    q headrace.queues, living uuid[]
) returns table (type text, routes bigint[])
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    with handled as materialized (
        select headrace._like_pattern(h) as pattern from headrace.nodes o cross join lateral unnest(o.handles) h
        where o.namespace = q.namespace and o.instance = any (living)
    )
    select r.type, array_agg(p.route)
    from (select distinct route from headrace._ready_routes(q.id, 10000)) p
    cross join lateral (
        select r.type from headrace.routes r where r.route = p.route and r.namespace = q.namespace limit 1
    ) r
    where not exists (select from handled h where r.type like h.pattern)
    group by r.type
$$;
