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
    limited as materialized (
        select * from headrace._limit_states(q, t) s where s.room = 0 and s.waiting > 0
    ),
    by_type as (
        select u.type, min(w.since) as since
        from headrace._waiting_since(q.id) w left join unhandled u on w.route = any (u.routes)
        -- a delivery that waits for a limit is not late
        where not exists (select from limited l where w.route = any (l.routes))
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
    union all
    (select 'limit_reached', 'notice', q.space, q.name,
            jsonb_strip_nulls(jsonb_build_object(
                'scope', l.scope, 'name', l.name, 'waiting', l.waiting, 'at_once', l.at_once, 'rate', l.rate,
                'per', l.per, 'oldest_seconds', floor(extract(epoch from t - l.waiting_since)))),
            l.waiting_since
     from limited l
     where q.state <> 'paused' and l.waiting_since < t - interval '5 minutes'
     order by l.waiting_since limit 10)
$$;
