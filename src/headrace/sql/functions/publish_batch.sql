-- Stores and queues events, with three inserts however many they are: see publish.
create function headrace.publish_batch(q headrace.queues, events jsonb, t timestamptz) returns bigint[]
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    ids bigint[];
begin
    if jsonb_typeof(publish_batch.events) = 'object' then
        publish_batch.events := jsonb_build_array(publish_batch.events);
    elsif jsonb_typeof(publish_batch.events) is distinct from 'array' then
        raise exception using errcode = 'QU001', message = 'publish takes a JSON array of events, or one event';
    end if;

    with item as materialized (
        select
            nextval('headrace.ids') as id,
            e.place,
            coalesce(e.type, 'event') as type,
            g.tags,
            g.sorted,
            headrace.route(coalesce(e.type, 'event'), g.sorted) as route,
            coalesce((e.rest ->> 'priority')::numeric::smallint, 5::smallint) as priority,
            (e.rest ->> 'max_retries')::smallint as max_retries,
            coalesce(e.payload, '{}') as payload,
            nullif(e.rest - '{tags,priority,delay,at,max_retries}'::text[], '{}') as details,
            coalesce(t + make_interval(secs => (e.rest ->> 'delay')::float8), (e.rest ->> 'at')::timestamptz) as due_at
        from (
            -- offset 0: taken apart once, here, and not again in every expression that uses a part
            select event, place, event ->> 'type' as type, event -> 'payload' as payload,
                   case when jsonb_typeof(event) = 'object' then event - '{type,payload}'::text[] end as rest
            from jsonb_array_elements(publish_batch.events) with ordinality as e(event, place)
            offset 0
        ) as e
        cross join lateral (
            select
                case when e.rest ? 'tags' then array(
                    select btrim(tag) from jsonb_array_elements_text(e.rest -> 'tags') with ordinality as g(tag, n) order by n
                ) end as tags,
                case when e.rest ? 'tags' then array(
                    select distinct btrim(tag) collate "C" from jsonb_array_elements_text(e.rest -> 'tags') as g(tag) order by 1
                ) end as sorted
        ) as g
        where case when e.rest = '{}' and headrace.harmless(e.event, e.type, e.payload) then true
                   else headrace.refuse(headrace.problem(e.event, e.type, e.payload, e.rest), e.place) is null end
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
    select array_agg(id order by place) into ids from item;
    return coalesce(ids, '{}');
end $$;
