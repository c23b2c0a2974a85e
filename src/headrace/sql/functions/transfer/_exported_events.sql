-- Events of a queue as its file has them: see export_events.
create or replace function headrace._exported_events(
    q headrace.queues, ids bigint[]
) returns table (id bigint, place text, document jsonb)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_nestloop = off   -- a nested loop over two lists is quadratic
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    since constant timestamptz := headrace._earliest_time_of(ids);
begin
    return query
    with dead as materialized (
        select x.* from headrace.dead_letters x where x.queue = q.id and x.event = any (ids)
    ),
    body as materialized (
        select distinct on (b.id) b.*
        from (
            select x.event as id, x.created_at, x.priority, x.max_retries, x.type, x.tags, x.payload, x.details, x.key,
                   0 as n from dead x
            union all
            select e.id, e.created_at, e.priority, e.max_retries, e.type, e.tags, e.payload, e.details, e.key, 1
            from headrace.events e
            where e.id = any (ids) and e.namespace = q.namespace and (since = '-infinity' or e.created_at >= since)
            union all
            select c.id, c.created_at, c.priority, c.max_retries, c.type, c.tags, c.payload, c.details, c.key, 2
            from headrace.events_carried c
            where c.id = any (ids) and c.namespace = q.namespace
        ) b
        order by b.id, b.n
    ),
    -- A fresh waiting delivery has no row here: it was never attempted.
    stood as materialized (
        select d.event, 'in_progress' as place, d.attempts, d.failures, d.crashes, d.suspect,
               null::timestamptz as due_at
        from headrace.deliveries d join unnest(ids) as n(id) on n.id = d.event
        where d.queue = q.id and d.until is not null
        union all
        select r.event, 'ready', r.attempts, r.failures, r.crashes, r.suspect, null from headrace.ready r
        where r.queue = q.id and r.seq <> r.event and r.key is null and r.event = any (ids)
        union all
        select k.event, 'ready', k.attempts, k.failures, k.crashes, k.suspect, null from headrace.keyed k
        where k.queue = q.id and k.event = any (ids)
        union all
        select d.event, 'delayed', d.attempts, d.failures, d.crashes, d.suspect, d.due_at from headrace.delayed d
        where d.queue = q.id and d.event = any (ids)
        union all
        select x.event, 'dead', x.attempts, x.failures, x.crashes, false, null from dead x
    )
    select b.id, coalesce(s.place, 'ready'),
           jsonb_strip_nulls(jsonb_build_object(
               'id', b.id, 'created_at', b.created_at, 'type', b.type, 'tags', to_jsonb(b.tags), 'priority', b.priority,
               'max_retries', b.max_retries, 'key', b.key, 'place', coalesce(s.place, 'ready'), 'due_at', s.due_at,
               'attempts', nullif(s.attempts, 0), 'retry_count', nullif(s.failures, 0), 'crashes', nullif(s.crashes, 0),
               'suspect', nullif(s.suspect, false), 'holds_key', a.holds_key,
               'idempotency_key', i.key, 'idempotency_digest', encode(i.digest, 'hex'),
               'last_error', case when f.at is not null then jsonb_build_object(
                   'error', f.error, 'at', f.at, 'attempt', f.attempt, 'max_retries', f.max_retries, 'retry_at',
                   f.retry_at) end,
               'died_at', x.died_at, 'status', x.status, 'reason', x.reason, 'error', x.error, 'fingerprint',
               x.fingerprint,
               'hollow', case when x.route = 0 then true end))
           -- These may hold nulls of their own.
           || case when b.details is null then '{}' else jsonb_build_object('details', b.details) end
           || case when p.value is null then '{}' else jsonb_build_object('progress', p.value) end
           || jsonb_build_object('payload', b.payload)
    from body b
    left join stood s on s.event = b.id
    left join dead x on x.event = b.id
    left join headrace.progress p on p.queue = q.id and p.event = b.id
    left join lateral (
        select true as holds_key from headrace.active o
        where s.place = 'delayed' and b.key is not null and o.queue = q.id and o.key = b.key and o.event = b.id
    ) a on true
    left join lateral (
        select o.key, o.digest from headrace.idempotency o
        where o.namespace = q.namespace and o.created_at = b.created_at and o.event = b.id limit 1
    ) i on true
    left join lateral (
        select r.error, r.at, r.attempt, r.max_retries, r.retry_at from headrace.errors r
        where s.failures > 0 and r.event = b.id and r.queue = q.id and (since = '-infinity' or r.at >= since)
        order by r.outcome desc limit 1
    ) f on true;
end $$;
