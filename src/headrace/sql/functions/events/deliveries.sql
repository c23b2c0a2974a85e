-- The status of an event in each queue that it was delivered to. An unknown event has no rows.
-- Raises QU010.
create or replace function headrace.deliveries(namespace text, event_id bigint)
returns table (queue text, status text, attempts int, retry_count smallint, crashes smallint, max_retries smallint,
               next_retry_at timestamptz, worker_id text, processing_started_at timestamptz,
               lease_expires_at timestamptz, updated_at timestamptz, snoozes int,
               superseded_by bigint)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    perform headrace._check_access(deliveries.namespace);
    if not exists (select from headrace.namespaces n where n.name = deliveries.namespace) then
        perform headrace._raise_no_such_queue(deliveries.namespace, 'main');
    end if;
    return query
    select q.name::text, s.status, s.attempts, s.retry_count, s.crashes, s.max_retries, s.next_retry_at, s.worker_id,
           s.processing_started_at, s.lease_expires_at, s.updated_at, s.snoozes,
           s.superseded_by
    from headrace.queues q
    cross join lateral headrace._event_states(q, array[deliveries.event_id]) s
    where q.space = deliveries.namespace and s.status is not null
    order by q.id;
end $$;
