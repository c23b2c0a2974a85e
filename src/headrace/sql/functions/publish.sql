-- Stores events once and queues them. `events` is an array of objects (or one object):
--     type (default "event"), payload, tags, priority 0-9 (0 is claimed first, default 5), delay (seconds) or at,
--     max_retries, backoff, title, description, version, source, correlation_id, causation_id, trace_id, producer
-- Returns the ids in the order given. All or nothing: one event that cannot be accepted refuses its batch.
--
-- Concurrency: waits for nobody. The events exist when, and only when, the caller's transaction commits.
-- Raises QU001, QU002, QU003 (with the event's place in the batch as detail), QU010.
create function headrace.publish(
    namespace text,
    events jsonb,
    out ids bigint[],
    out created_at timestamptz
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    q headrace.queues;
    t timestamptz := headrace.now();
begin
    -- An id drawn before the transaction has an xid could commit below a bound that was declared final.
    perform pg_current_xact_id();

    select queues.* into q
    from headrace.namespaces join headrace.queues on queues.namespace = namespaces.id and queues.name = 'main'
    where namespaces.name = publish.namespace;
    if not found then
        perform headrace.no_such_queue(publish.namespace, 'main');
    end if;

    if jsonb_typeof(publish.events) = 'object' then
        publish.events := jsonb_build_array(publish.events);
    elsif jsonb_typeof(publish.events) is distinct from 'array' then
        raise exception using errcode = 'QU001', message = 'publish takes a JSON array of events, or one event';
    end if;

    with item as materialized (
        select
            nextval('headrace.ids') as id,
            place,
            coalesce(event ->> 'type', 'event') as type,
            given.tags,
            given.sorted,
            hashtextextended(concat(coalesce(event ->> 'type', 'event'), ',' || array_to_string(given.sorted, ',')), 0) as route,
            coalesce((event ->> 'priority')::numeric::smallint, 5::smallint) as priority,
            (event ->> 'max_retries')::smallint as max_retries,
            coalesce(event -> 'payload', '{}') as payload,
            nullif(event - '{type,payload,tags,priority,delay,at,max_retries}'::text[], '{}') as details,
            coalesce(t + make_interval(secs => (event ->> 'delay')::float8), (event ->> 'at')::timestamptz) as due_at
        from jsonb_array_elements(publish.events) with ordinality as e(event, place)
        cross join lateral (
            select
                case when event ? 'tags' then array(
                    select btrim(tag) from jsonb_array_elements_text(event -> 'tags') with ordinality as g(tag, n) order by n
                ) end as tags,
                case when event ? 'tags' then array(
                    select distinct btrim(tag) collate "C" from jsonb_array_elements_text(event -> 'tags') as g(tag) order by 1
                ) end as sorted
        ) as given
        where headrace.refuse(headrace.problem(event), place) is null
    ),
    stored as (
        insert into headrace.events (id, created_at, route, namespace, priority, max_retries, type, tags, payload, details)
        select id, t, route, q.namespace, priority, max_retries, type, nullif(tags, '{}'), payload, details
        from item
    ),
    queued as (
        insert into headrace.ready (event, created_at, route, seq, queue, priority)
        select id, t, route, id, q.id, priority
        from item
        where due_at is null or due_at <= t
    ),
    put_off as (
        insert into headrace.delayed (event, created_at, due_at, route, queue, priority)
        select id, t, due_at, route, q.id, priority
        from item
        where due_at > t
    ),
    routed as (
        insert into headrace.routes (namespace, route, type, tags, created_at)
        select q.namespace, route, type, coalesce(sorted, '{}'), t
        from (select distinct route, type, sorted from item) as seen
        where not exists (
            select from headrace.routes known where known.namespace = q.namespace and known.route = seen.route)
    )
    select array_agg(id order by place) into publish.ids from item;

    publish.created_at := t;
    publish.ids := coalesce(publish.ids, '{}');
    if cardinality(publish.ids) > 0 then
        insert into headrace.counts (at, namespace, queue, published)
        values (t, q.namespace, q.id, cardinality(publish.ids));
        perform headrace.wake(q.id);
    end if;
end $$;
