-- One event and where its delivery in a queue stands: one statement, so that a delivery on the move is seen once.
-- PENDING, PROCESSING, or the end it came to; an end is only told on the evidence of an outcome or a dead letter.
-- Raises QU010, QU011, QU012.
create or replace function headrace.event(namespace text, event_id bigint, queue text default 'main')
returns table (id bigint, type text, tags text[], payload jsonb, details jsonb, priority smallint, status text, attempts int,
               retry_count smallint, crashes smallint, max_retries smallint, next_retry_at timestamptz, worker_id text,
               processing_started_at timestamptz, lease_expires_at timestamptz, created_at timestamptz, updated_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    q headrace.queues;
begin
    select * into q from headrace.queues where queues.space = event.namespace and queues.name = event.queue;
    if not found then
        perform headrace.no_such_queue(event.namespace, event.queue);
    end if;
    return query
    select e.id, e.type, e.tags, e.payload, e.details, e.priority,
           case when d.lease is not null then 'PROCESSING' when d.event is not null then 'PENDING' else coalesce(x.status, o.action) end,
           coalesce(d.attempts, x.attempts, o.attempt, 0),
           coalesce(d.failures, x.failures, f.failures, 0::smallint),
           coalesce(d.crashes, x.crashes, 0::smallint),
           coalesce(e.max_retries, q.max_retries),
           d.due_at,
           coalesce(d.worker, o.worker),
           coalesce(d.picked_at, o.picked_at),
           d.until,
           e.created_at,
           coalesce(greatest(d.picked_at, o.at), e.created_at)
    from (
        select b.* from headrace.events b where b.id = event.event_id and b.namespace = q.namespace
        union all
        select b.* from headrace.events_carried b where b.id = event.event_id and b.namespace = q.namespace
        union all
        select b.event, b.created_at, b.route, b.namespace, 0, b.priority, b.max_retries, b.type, b.tags, b.payload, b.details, b.key
        from headrace.dead_letters b where b.event = event.event_id and b.queue = q.id
        limit 1
    ) e
    left join lateral headrace.delivery(e.id, q.id, e.route, e.priority) d on true
    left join headrace.dead_letters x on x.event = event.event_id and x.queue = q.id
    left join lateral (
        select o.action, o.at, o.worker, o.picked_at, o.attempts[array_position(o.events, event.event_id)] as attempt
        from headrace.outcomes o
        where o.bucket = event.event_id >> 10 and o.queue = q.id and event.event_id = any (o.events)
          and (o.picked_at is not null or o.action = 'CANCELLED')  -- what waited has ended without a claim
        order by o.id desc limit 1
    ) o on true
    left join lateral (
        select r.failures from headrace.errors r
        where r.event = event.event_id and r.queue = q.id
          and r.outcome > coalesce((
              select max(o.id) from headrace.outcomes o
              where o.bucket = event.event_id >> 10 and o.queue = q.id and event.event_id = any (o.events) and o.action = 'REDRIVEN'), 0)
        order by r.outcome desc limit 1
    ) f on true;
    if not found then
        raise exception using errcode = 'QU012', message = format('there is no event %s in the namespace %L', event.event_id, event.namespace);
    end if;
end $$;
