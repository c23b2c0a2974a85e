-- Stores events once and queues them. `events` is an array of objects (or one object):
--     type (default "event"), payload, tags, priority 0-9 (0 is claimed first, default 5), delay (seconds) or at,
--     max_retries, backoff, title, description, version, source, correlation_id, causation_id, trace_id, producer
-- Returns the ids in the order given. All or nothing: one event that cannot be accepted refuses its batch.
--
-- Concurrency: waits for nobody. The events exist when, and only when, the caller's transaction commits.
-- Raises QU001, QU002, QU003 (with the event's place in the batch as detail), QU010.
create or replace function headrace.publish(
    namespace text,
    events jsonb,
    out ids bigint[],
    out created_at timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    q headrace.queues;
    event jsonb;
    type text;
    payload jsonb;
    its_route bigint;
    id bigint;
    -- An id drawn before the transaction has an xid could commit below a bound that was declared final.
    xid xid8 := pg_current_xact_id();
begin
    created_at := headrace.now();
    select * into q from headrace.queues o where o.space = namespace and o.name = 'main';
    if q.id is null then
        perform headrace.no_such_queue(namespace, 'main');
    end if;

    -- A single plain event goes by simple statements: one over sets takes longer to set up than this takes. (Few
    -- expressions, too: plpgsql prepares each of them anew in every transaction.)
    event := case jsonb_typeof(events) when 'object' then events when 'array' then events -> 0 end;
    type := event ->> 'type';
    payload := event -> 'payload';
    if headrace.harmless(event, type, payload) and events -> 1 is null then
        its_route := headrace.route(type, null);
        insert into headrace.events (id, created_at, route, namespace, version, priority, type, payload)
        values (nextval('headrace.ids'), created_at, its_route, q.namespace, q.version, 5, type, payload)
        returning events.id into id;
        insert into headrace.ready (event, created_at, route, seq, queue, priority)
        values (id, created_at, its_route, id, q.id, 5);
        insert into headrace.routes (namespace, route, type, tags, created_at)
        select q.namespace, its_route, type, '{}', created_at
        where not exists (select from headrace.routes known where known.route = its_route and known.namespace = q.namespace);
        ids[1] := id;
    else
        ids := headrace.publish_batch(q, events, created_at);
    end if;

    insert into headrace.counts (at, namespace, queue, published)
    values (created_at, q.namespace, q.id, cardinality(ids));
    perform headrace.wake(q.id);
end $$;
