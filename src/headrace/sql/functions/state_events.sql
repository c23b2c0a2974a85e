-- The unfinished events of a queue after an id, the oldest first, at most `most`, as the state document lists them. Without payloads
-- it is what is kept: errors are cut short then.
create or replace function headrace.state_events(q headrace.queues, after bigint, most int, with_payloads boolean) returns json
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    wanted constant headrace.wanted := headrace.filter(q, '{PENDING,PROCESSING}', null, null, null, null, null, null, null, null);
    ids constant bigint[] := array(
        select distinct c from headrace.candidates(q, wanted, after, 9223372036854775807, false, most) c order by c limit most);
begin
    return (
        with body as materialized (
            select e.* from headrace.events e where e.id = any (ids) and e.namespace = q.namespace
            union all
            select c.* from headrace.events_carried c where c.id = any (ids) and c.namespace = q.namespace
        ),
        claimed as materialized (
            select d.* from headrace.deliveries d where d.event = any (ids) and d.queue = q.id and d.until is not null
        ),
        item as (
            select distinct on (b.id) b.id, b.type, b.payload, b.created_at, coalesce(b.details, '{}') as details,
                   coalesce(c.failures, w.failures) as failures, c.picked_at
            from body b
            left join claimed c on c.event = b.id
            left join lateral headrace.waiting(b.id, q.id, b.route, b.priority) w on c.event is null
            order by b.id
        ),
        told as (
            select i.*, f.error, f.at,
                   case when i.details ? 'scheduled_task_id'
                        then jsonb_build_object('type', 'task', 'id', i.details -> 'scheduled_task_id', 'name', coalesce(i.details ->> 'producer', ''))
                        else jsonb_build_object('type', 'external', 'id', coalesce(i.details ->> 'producer', ''), 'name', coalesce(i.details ->> 'producer', ''))
                   end || coalesce(i.details -> 'source', '{}') as source
            from item i
            left join lateral (
                select r.error, r.at from headrace.errors r where r.event = i.id and r.queue = q.id order by r.outcome desc limit 1
            ) f on i.failures > 0
        )
        select coalesce(json_agg(case when with_payloads then
            json_build_object(
                'eventId', i.id::text, 'pattern', i.type, 'version', coalesce(i.details ->> 'version', '1.0.0'), 'source', i.source,
                'timestamp', headrace.iso(i.created_at), 'payload', i.payload, 'metadata', m.metadata)
        else
            json_build_object(
                'eventId', i.id::text, 'pattern', i.type, 'version', coalesce(i.details ->> 'version', '1.0.0'), 'source', i.source,
                'timestamp', headrace.iso(i.created_at), 'metadata', m.metadata)
        end order by i.id), '[]')
        from told i
        cross join lateral (
            select json_strip_nulls(json_build_object(
                'correlationId', i.details ->> 'correlation_id', 'causationId', i.details ->> 'causation_id',
                'traceId', i.details ->> 'trace_id', 'retryCount', i.failures,
                'lastError', left(i.error, case when with_payloads then 65536 else 500 end), 'lastErrorTime', headrace.iso(i.at),
                'processingStartTime', headrace.iso(i.picked_at))) as metadata
        ) m
    );
end $$;
