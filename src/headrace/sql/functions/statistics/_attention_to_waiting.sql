-- The deliveries that wait too long in a queue: see attention and _waiting_since. A worker that is
-- not a node does not declare the types it handles: where such a worker is active, no type is
-- called unhandled. living: the result of _alive_nodes.
create or replace function headrace._attention_to_waiting(
    q headrace.queues, t timestamptz, living uuid[]
) returns setof headrace.finding
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    with unhandled as materialized (
        select u.type, u.routes from headrace._unhandled_in_queue(q, living) u
        where not headrace._has_other_workers(q, t, living)
    ),
    by_type as (
        select u.type, min(w.since) as since
        from headrace._waiting_since(q.id) w left join unhandled u on w.route = any (u.routes)
        group by u.type
    )
    select case when b.type is null then 'waiting_long' else 'unhandled' end,
           case when b.since < t - interval '1 hour' then 'critical' else 'warning' end,
           q.space, q.name::text,
           jsonb_strip_nulls(jsonb_build_object(
               'type', b.type, 'oldest_seconds', floor(extract(epoch from t - b.since)),
               'waiting', case when b.type is null then headrace._depth(q.id, 10000) end)),
           b.since
    from by_type b
    where q.state <> 'paused'
      and b.since < t - case when b.type is null then interval '5 minutes' else interval '1 minute' end
$$;
