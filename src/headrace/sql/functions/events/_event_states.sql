-- Events of a queue's namespace and the status of their deliveries in the queue: PENDING,
-- PROCESSING, or their end. An end needs the evidence of a dead letter or an outcome; null: the
-- event was never delivered to this queue. Stable, so all of it, and of the calls around it, is one
-- snapshot: a moving delivery is seen once.
create or replace function headrace._event_states(q headrace.queues, ids bigint[])
returns setof headrace.shown
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    buckets constant bigint[] := array(select distinct headrace._bucket(i) from unnest(ids) i);
    since constant timestamptz := headrace._earliest_time_of(ids);
begin
    return query
    with body as materialized (
        select distinct on (b.id) b.*
        from (
            select e.* from headrace.events e where e.id = any (ids) and e.namespace = q.namespace
                and (since = '-infinity' or e.created_at >= since)
            union all
            select c.* from headrace.events_carried c where c.id = any (ids) and c.namespace = q.namespace
            union all
            select x.event, x.created_at, x.route, x.namespace, 0, x.priority, x.max_retries, x.type, x.tags, x.payload,
                   x.details, x.key
            from headrace.dead_letters x where x.event = any (ids) and x.queue = q.id
        ) b
        order by b.id
    ),
    claimed as materialized (
        select d.* from headrace.deliveries d where d.event = any (ids) and d.queue = q.id and d.until is not null
    ),
    trail as (
        select m.event, m.attempt, o.id, o.action, o.at, o.worker, o.picked_at,
               -- a late finish may have reverted it: see _take_late
               o.action = 'ABANDONED'
                   and not bool_or(o.picked_at is not null and o.lease is null) over (partition by m.event,
                       m.attempt) as is_abandoned,
               coalesce(max(o.id) filter (where o.action = 'REDRIVEN') over (partition by m.event), 0) as redriven
        from headrace.outcomes o
        cross join lateral unnest(o.events, o.attempts) as m(event, attempt)
        join unnest(ids) as i(id) on i.id = m.event
        where o.bucket = any (buckets) and o.queue = q.id and o.events && ids and (since = '-infinity' or o.at >= since)
    ),
    ended as materialized (
        -- The first abandonment only made the delivery a suspect: see _settle. A delivery that was
        -- redriven after a crash still is one.
        select distinct on (t.event) t.event, t.attempt, t.action, t.worker, t.picked_at, t.redriven,
               max(t.at) over its as at,
               greatest(0, count(*) filter (where t.is_abandoned and t.id > t.redriven) over its
                           - (count(*) filter (where t.is_abandoned
                                               and t.id < t.redriven) over its < 2)::int)::smallint as crashes,
               bool_or(t.action = 'COMPLETED_WITH_ERRORS' and t.id > t.redriven) over its as has_errors
        from trail t
        window its as (partition by t.event)
        order by t.event, (t.picked_at is not null or t.action = 'CANCELLED') desc, t.id desc
    )
    select b.id, b.type, b.tags, headrace._readable_json(b.payload), headrace._readable_json(b.details), b.priority,
           case when c.event is not null then 'PROCESSING'
                when w.event is not null then 'PENDING'
                when x.event is not null then x.status
                when o.action in ('COMPLETED', 'COMPLETED_WITH_ERRORS', 'CANCELLED') then o.action
                when o.has_errors then 'COMPLETED_WITH_ERRORS'  -- its dead letter was purged, as in the next line
                when o.action is not null then 'FAILED'
           end,
           coalesce(c.attempts, w.attempts, x.attempts, o.attempt, 0),
           coalesce(c.failures, w.failures, x.failures, f.failures, 0::smallint),
           coalesce(c.crashes, w.crashes, x.crashes, o.crashes, 0::smallint),
           coalesce(b.max_retries, f.max_retries, q.max_retries),
           w.due_at,
           coalesce(c.worker, o.worker),
           coalesce(c.picked_at, o.picked_at),
           c.until,
           b.created_at,
           coalesce(greatest(c.picked_at, o.at), b.created_at),
           b.key,
           x.reason
    from body b
    left join claimed c on c.event = b.id
    left join lateral headrace._waiting_delivery(b.id, q.id, b.route, b.priority) w on true
    left join headrace.dead_letters x on x.event = b.id and x.queue = q.id
    left join ended o on o.event = b.id
    left join lateral (
        select r.failures, r.max_retries from headrace.errors r
        where r.event = b.id and r.queue = q.id and r.outcome > coalesce(o.redriven, 0)
          and (since = '-infinity' or r.at >= since)
        order by r.outcome desc limit 1
    ) f on true;
end $$;
