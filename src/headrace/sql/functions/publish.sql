-- Stores events once and queues them in every queue of the namespace that takes them. `events` is an array of objects
-- (or one object):
--     type (default "event"), payload, tags, priority 0-9 (0 is claimed first, default 5), delay (seconds) or at, key (of
--     ordering), idempotency_key, max_retries, backoff, title, description, version, source, correlation_id,
--     causation_id, trace_id, producer; what a schedule fires also has scheduled_task_id and scheduled_for
-- `payloads`, an array, instead of payload: as many events that have all else in common; much the fastest way.
-- Returns the ids in the order given. All or nothing: one event that cannot be accepted refuses its batch.
-- repeated: the places, from 1, of those whose idempotency key was used before, with the same type, payload, tags and
-- key: their ids are the first ones', nothing was stored. created_at is the first event's.
-- pressure: a queue that takes them has reached its high watermark. One that is full refuses them (QU050), or, with
-- enforce := false, also just tells.
--
-- Concurrency: waits for nobody but an open publisher of the same idempotency key. The events exist when, and only when,
-- the caller's transaction commits.
-- Raises QU001, QU002, QU003, QU022 (with the event's place in the batch as detail), QU010, QU050, QU051.
create or replace function headrace.publish(
    namespace text,
    events jsonb,
    enforce boolean default true,
    out ids bigint[],
    out created_at timestamptz,
    out pressure boolean,
    out repeated int[]
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off        -- the bindings are few when this is planned, and later they are not
as $$
#variable_conflict use_variable
declare
    event jsonb;
    type text;
    payload jsonb;
    its_route bigint;
    id bigint;
    n record;
    -- An id drawn before the transaction has an xid could commit below a bound that was declared final.
    xid xid8 := pg_current_xact_id();
begin
    created_at := headrace.now();
    event := case when pg_column_size(events) > 2000 then null when jsonb_typeof(events) = 'object' then events else events -> 0 end;
    type := event ->> 'type';
    payload := event -> 'payload';

    -- A single plain event goes by simple statements: one over sets takes longer to set up than this takes. (Few
    -- expressions, too: plpgsql prepares each of them anew in every transaction.)
    if type is not null and events -> 1 is null and payload is not null and headrace.harmless(event, type, payload) then
        its_route := headrace.route(type, null);
        select s.id, s.version, s.guarded, b.queues into n
        from headrace.namespaces s
        left join headrace.bindings b on b.route = its_route and b.namespace = s.id and b.version = s.version
        where s.name = namespace limit 1;
        if n.queues is not null then
            pressure := n.guarded and headrace.guard(n.queues, enforce, created_at);
            insert into headrace.events (id, created_at, route, namespace, version, priority, type, payload)
            values (nextval('headrace.ids'), created_at, its_route, n.id, n.version, 5, type, payload)
            returning events.id into id;
            insert into headrace.ready (event, created_at, route, seq, queue, priority)
            select id, created_at, its_route, id, queue, 5 from unnest(n.queues) queue;
            insert into headrace.counts (at, namespace, queue, published)
            select created_at, n.id, queue, 1 from unnest(n.queues) queue;
            perform headrace.wake(queue) from unnest(n.queues) queue;
            ids[1] := id;
            return;
        end if;
    end if;
    select * into ids, pressure, repeated, created_at
    from headrace.publish_batch(namespace, events, enforce, created_at);
end $$;
