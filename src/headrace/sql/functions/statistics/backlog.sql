-- The waiting deliveries and dead letters of every queue, by type: for a monitor that asks every
-- few seconds, at any queue depth. A place that fits on 250 pages is counted. Of a larger place the
-- function reads 250 pages, chosen at random; and so that it does not miss the few deliveries of a
-- small queue or a rare type, it counts the first 250 rows of each pair of priority and route in
-- ready, and of each queue elsewhere. is_exact: none of a row's numbers was estimated. Each queue
-- has rows for its 100 most frequent types; the other types are added up without a type (null).
-- oldest_ready_at: when the longest waiting delivery was published, of those that were read.
create or replace function headrace.backlog()
returns table (namespace text, queue text, type text, ready bigint, delayed bigint, dead_letters bigint,
               oldest_ready_at timestamptz, is_exact boolean)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    most constant int := 250;
    of_ready constant float8 := headrace._sample_percentage('ready', 250);
    of_keyed constant float8 := headrace._sample_percentage('keyed', 250);
    of_delayed constant float8 := headrace._sample_percentage('delayed', 250);
    of_dead constant float8 := headrace._sample_percentage('dead_letters', 250);
begin
    return query
    with looked_at as (
        select r.queue, r.route, 'ready' as place, sum(coalesce(cardinality(r.pack), 1)) / of_ready * 100 as size,
               min(r.created_at) as oldest_at, of_ready < 100 as estimated
        from headrace.ready r tablesample system (of_ready) where r.key is null
        group by r.queue, r.route
        union all
        select k.queue, k.route, 'keyed', count(*) / of_keyed * 100, min(k.created_at), of_keyed < 100
        from headrace.keyed k tablesample system (of_keyed) group by k.queue, k.route
        union all
        select d.queue, d.route, 'delayed', count(*) / of_delayed * 100, null, of_delayed < 100
        from headrace.delayed d tablesample system (of_delayed) group by d.queue, d.route
    ),
    -- Of places that were not read whole. The limit is inside: a pair that holds only tokens must
    -- not be read to its end.
    first_ones as (
        select q.id as queue, p.route, 'ready' as place, f.size, f.oldest_at, f.rows = most as estimated
        from headrace.queues q
        cross join lateral headrace._ready_routes(q.id, 1000) p
        cross join lateral (
            select coalesce(sum(o.size) filter (where o.key is null), 0) as size,
                   min(o.created_at) filter (where o.key is null) as oldest_at, count(*) as rows
            from (select coalesce(cardinality(r.pack), 1) as size, r.key, r.created_at from headrace.ready r
                  where r.queue = q.id and r.suspect = p.suspect and r.priority = p.priority and r.route = p.route
                  order by r.seq limit most) o
        ) f
        where of_ready < 100
        union all
        select q.id, f.route, 'keyed', count(*), min(f.created_at), sum(count(*)) over (partition by q.id) = most
        from headrace.queues q
        cross join lateral (select k.route, k.created_at from headrace.keyed k where k.queue = q.id order by k.event
                            limit most) f
        where of_keyed < 100 group by q.id, f.route
        union all
        select q.id, f.route, 'delayed', count(*), null, sum(count(*)) over (partition by q.id) = most
        from headrace.queues q
        cross join lateral (select d.route from headrace.delayed d where d.queue = q.id order by d.event limit most) f
        where of_delayed < 100 group by q.id, f.route
    ),
    estimates as (
        select l.queue, o.type, l.place, sum(l.size) as size, min(l.oldest_at) as oldest_at,
               bool_or(l.estimated) as estimated
        from looked_at l cross join lateral (select t.type from headrace.routes t where t.route = l.route limit 1) o
        group by l.queue, o.type, l.place
        union all
        select x.queue, x.type, 'dead', count(*) / of_dead * 100, null, of_dead < 100
        from headrace.dead_letters x tablesample system (of_dead) group by x.queue, x.type
    ),
    counts as (
        select f.queue, o.type, f.place, sum(f.size) as size, min(f.oldest_at) as oldest_at,
               bool_or(f.estimated) as estimated
        from first_ones f cross join lateral (select t.type from headrace.routes t where t.route = f.route limit 1) o
        group by f.queue, o.type, f.place
        union all
        select q.id, f.type, 'dead', count(*), null, sum(count(*)) over (partition by q.id) = most
        from headrace.queues q
        cross join lateral (select x.type from headrace.dead_letters x where x.queue = q.id order by x.event
                            limit most) f
        where of_dead < 100 group by q.id, f.type
    ),
    -- A complete count is exact; else the greater of the two numbers counts.
    known as (
        select queue, type, place, least(c.oldest_at, e.oldest_at) as oldest_at,
               coalesce(c.estimated, e.estimated) as estimated,
               case when c.estimated is false then c.size else greatest(c.size, e.size) end as size
        from estimates e full join counts c using (queue, type, place)
    ),
    by_type as (
        select k.queue, k.type, coalesce(sum(k.size) filter (where k.place in ('ready', 'keyed')), 0) as ready,
               coalesce(sum(k.size) filter (where k.place = 'delayed'), 0) as delayed,
               coalesce(sum(k.size) filter (where k.place = 'dead'), 0) as dead, min(k.oldest_at) as oldest_at,
               bool_or(k.estimated) as estimated,
               row_number() over (partition by k.queue order by sum(k.size) desc, k.type) as place
        from known k where k.size > 0 group by k.queue, k.type
    )
    select q.space, q.name, case when b.place <= 100 then b.type end, sum(b.ready)::bigint, sum(b.delayed)::bigint,
           sum(b.dead)::bigint, min(b.oldest_at), not bool_or(b.estimated)
    from by_type b join headrace.queues q on q.id = b.queue
    where q.space is not null and (not q.bound or headrace._has_access(q.space))
    group by q.space, q.name, case when b.place <= 100 then b.type end
    order by q.space, q.name, 3;
end $$;
