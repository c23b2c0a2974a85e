-- The events that match a search word: the one with this id or this idempotency key, and those with
-- this correlation id, the newest first, at most `limit`, with the status of their deliveries in a
-- queue; payload: whether to include it; otherwise it is null. Indexes find all of them.
-- Raises QU001, QU010, QU011.
create or replace function headrace.find_events(
    namespace text, word text, queue text default 'main', "limit" int default 20, payload boolean default false
) returns setof headrace.shown
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    q headrace.queues := headrace._queue_named(find_events.namespace, find_events.queue);
begin
    if "limit" is null or "limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001', message = 'limit is a number from 1 to 1000';
    end if;
    return query
    select s.id, s.type, s.tags, case when find_events.payload then s.payload end, s.details, s.priority, s.status,
           s.attempts, s.retry_count,
           s.crashes, s.max_retries, s.next_retry_at, s.worker_id, s.processing_started_at, s.lease_expires_at,
           s.created_at, s.updated_at, s.key, s.reason, s.snoozes,
           s.superseded_by
    from headrace._event_states(q, array(
        select word::bigint where word ~ '^[1-9][0-9]{0,17}$'
        union
        select i.event from headrace.idempotency i where i.namespace = q.namespace and i.key = word
        union
        (select e.id from headrace.events e
         where e.details ->> 'correlation_id' = word and e.details ->> 'correlation_id' is not null
           and e.namespace = q.namespace
         order by e.id desc limit find_events."limit")
    )) s
    order by s.id desc limit find_events."limit";
end $$;
