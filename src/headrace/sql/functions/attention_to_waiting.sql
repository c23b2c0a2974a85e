-- What waits too long in a queue: see attention. By the first of every pair of priority and route, if it was never claimed or delayed: how
-- long another waits nobody knows. Who works without being a node does not say what he handles: where somebody does, nothing is called unhandled.
create or replace function headrace.attention_to_waiting(q headrace.queues, t timestamptz) returns setof headrace.finding
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    with nodes as materialized (
        select o.worker from headrace.nodes o
        where o.namespace = q.namespace and o.stopped_at is null and o.last_heartbeat > t - interval '90 seconds'
    ),
    unhandled as materialized (
        select u.type, u.routes from headrace.unhandled_in(q, t) u
        where not exists (select from headrace.leases l where l.queue = q.id and l.worker not in (select o.worker from nodes o))
          and (exists (select from nodes) or not exists (
              select from headrace.stats s where s.queue = q.id and s.minute >= t - interval '6 minutes' and s.attempts > 0))
    ),
    waiting as (
        select p.route, min(r.created_at) as since
        from headrace.pairs(q.id, 1000) p
        cross join lateral (
            select r.created_at, r.seq = r.event as is_fresh from headrace.ready r
            where r.queue = q.id and r.suspect = p.suspect and r.priority = p.priority and r.route = p.route and r.key is null
            order by r.seq limit 1
        ) r
        where r.is_fresh
        group by p.route
    ),
    by_type as (
        select u.type, min(w.since) as since
        from waiting w left join unhandled u on w.route = any (u.routes)
        group by u.type
    )
    select case when b.type is null then 'waiting_long' else 'unhandled' end,
           case when b.since < t - interval '1 hour' then 'critical' else 'warning' end,
           q.space, q.name::text,
           jsonb_strip_nulls(jsonb_build_object(
               'type', b.type, 'oldest_seconds', floor(extract(epoch from t - b.since)),
               'waiting', case when b.type is null then headrace.depth(q.id, 10000) end)),
           b.since
    from by_type b
    where q.state <> 'paused'
      and b.since < t - case when b.type is null then interval '5 minutes' else interval '1 minute' end
$$;
