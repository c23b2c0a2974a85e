-- The unfinished events of a queue after an id, the oldest first, at most `most`, each with its
-- fields of the state document.
create or replace function headrace._state_events(q headrace.queues, after bigint, most int)
returns table (id bigint, pattern text, version text, source jsonb, "timestamp" text, payload jsonb, metadata jsonb)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    wanted constant headrace.wanted := headrace._checked_filter(q, '{PENDING,PROCESSING}', null, null, null, null, null,
                                                                null, null, null);
    ids constant bigint[] := array(
        select distinct c from headrace._matching_events(q, wanted, after, 9223372036854775807, false, most) c
        order by c limit most);
    since constant timestamptz := headrace._earliest_time_of(ids);
begin
    return query
    with body as materialized (
        select e.* from headrace.events e where e.id = any (ids) and e.namespace = q.namespace
            and (since = '-infinity' or e.created_at >= since)
        union all
        select c.* from headrace.events_carried c
        where c.id = any (ids) and c.namespace = q.namespace and not exists (select from headrace.events e
            where e.id = c.id and (since = '-infinity' or e.created_at >= since))
    ),
    claimed as materialized (
        select d.event, d.failures, d.picked_at from headrace.deliveries d join unnest(ids) as n(id) on n.id = d.event
        where d.queue = q.id and d.until is not null
    ),
    -- A fresh waiting delivery has never failed; only deliveries that came back need a look one by
    -- one.
    returned as materialized (
        select r.event, r.failures from headrace.ready r
        where r.queue = q.id and r.seq <> r.event and r.key is null and r.event = any (ids)
        union all
        select k.event, k.failures from headrace.keyed k where k.queue = q.id and k.event = any (ids)
        union all
        select d.event, d.failures from headrace.delayed d where d.queue = q.id and d.event = any (ids)
    ),
    item as materialized (
        select b.id, b.type, b.payload, b.created_at, headrace._readable_json(b.details) as details,
               coalesce(c.failures, w.failures, 0::smallint) as failures, c.picked_at
        from body b
        left join claimed c on c.event = b.id
        left join returned w on w.event = b.id
    )
    select i.id, i.type, coalesce(i.details ->> 'version', '1.0.0'),
           case when i.details ? 'scheduled_task_id'
                then jsonb_build_object('type', 'task', 'id', i.details -> 'scheduled_task_id', 'name',
                                        coalesce(i.details ->> 'producer', ''))
                else jsonb_build_object('type', 'external', 'id', coalesce(i.details ->> 'producer', ''),
                                        'name', coalesce(i.details ->> 'producer', ''))
           end || coalesce(i.details -> 'source', '{}'),
           headrace._iso(i.created_at), headrace._readable_json(i.payload),
           jsonb_strip_nulls(jsonb_build_object(
               'correlationId', i.details -> 'correlation_id', 'causationId', i.details -> 'causation_id', 'traceId',
               i.details -> 'trace_id',
               'retryCount', i.failures, 'lastError', f.error, 'lastErrorTime', headrace._iso(f.at),
               'processingStartTime', headrace._iso(i.picked_at)))
    from item i
    left join lateral (
        select r.error, r.at from headrace.errors r
        -- in here, so that a delivery that never failed costs no look
        where i.failures > 0 and r.event = i.id and r.queue = q.id and (since = '-infinity' or r.at >= since)
        order by r.outcome desc limit 1
    ) f on true
    order by i.id;
end $$;
