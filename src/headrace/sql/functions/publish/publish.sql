-- Stores events once and queues them in every queue of the namespace that takes them. `events` is
-- an array of objects (or one object):
--     type (default "event"), payload, tags, priority 0-9 (0 is claimed first, default 5), delay
--     (seconds) or at, key (of ordering), idempotency_key, unique, debounce with settle and
--     at_latest (seconds), max_retries, backoff, title, description, version, source,
--     correlation_id, causation_id, trace_id, producer, headers; an event of a schedule also has
--     scheduled_task_id and scheduled_for; an envelope of pgmq.send has emitted_at, its sender's
--     time
-- debounce: the event supersedes the last one of its key that waits and was never claimed, in each
-- queue that takes it, and is due after `settle` without another one; at the latest `at_latest`
-- after the first of them: see _enqueue_debounced.
-- `payloads`, an array, instead of payload: one event for each payload, all else the same; by far
-- the fastest way.
-- Returns the ids in the order given. All or nothing: one invalid event makes publish refuse the
-- whole batch.
-- repeated: the places, from 1, of the events whose idempotency key was used before, with the same
-- type, payload, tags and key: they get the ids of the first events and are not stored. So do those
-- whose `unique` key an event holds that has an unfinished delivery, in any queue of the namespace,
-- whatever their payload; dead letters are finished. created_at: the first event's.
-- pressure: a queue that takes them has reached its high watermark. If such a queue is full,
-- publish refuses the events (QU050), or, with enforce := false, only reports pressure.
--
-- asked: the shards that were the home of an idempotency key before do not know it: see
-- published_before. Without that answer publish refuses such a key (QU060).
--
-- Concurrency: waits only for an open publisher of the same idempotency, unique or debounce key, or
-- a redrive, reset or rerun of an event of that unique key. The events exist when, and only when,
-- the caller's transaction commits.
-- Raises QU001, QU002, QU003, QU022 (with the event's place in the batch as detail), QU010, QU050,
-- QU051; QU060 for a key whose home is another shard, with its slot as detail.
create or replace function headrace.publish(
    namespace text,
    events jsonb,
    enforce boolean default true,
    asked boolean default false,
    out ids bigint[],
    out created_at timestamptz,
    out pressure boolean,
    out repeated int[]
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    event jsonb;
    -- An id drawn before the transaction has an xid could commit below a bound that was declared
    -- final.
    xid xid8;
begin
    event := case when pg_column_size(events) > 2000 then null when jsonb_typeof(events) = 'object' then events
                  else events -> 0 end;
    if jsonb_typeof(event) = 'object' and events -> 1 is null and event - '{type,payload}'::text[] = '{}'
       and event ? 'payload'
       and jsonb_typeof(event -> 'type') = 'string' then
        select array[p.id], p.created_at, p.pressure into ids, created_at, pressure
        from headrace.publish_one(namespace, event ->> 'type', event -> 'payload', enforce) p;
        return;
    end if;
    xid := pg_current_xact_id();
    select * into ids, pressure, repeated, created_at
    from headrace._publish_batch(namespace, events, enforce, headrace._now(), asked => asked);
end $$;
