-- Stores and queues events, with three inserts however many they are: see publish.
create or replace function headrace.publish_batch(q headrace.queues, events jsonb, t timestamptz) returns bigint[]
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

    -- offset 0 keeps a part from being taken out again in every expression that uses it
    with part as (
        select event, place, event ->> 'type' as type, event -> 'payload' as payload,
               case when jsonb_typeof(event) = 'object' then event - '{type,payload}'::text[] end as rest
        from jsonb_array_elements(publish_batch.events) with ordinality as e(event, place)
        offset 0
    ),
    tagged as (
        select event, place, coalesce(type, 'event') as type, payload, rest, rest = '{}' as plain,
               case when rest ? 'tags' then array(
                   select btrim(tag) from jsonb_array_elements_text(rest -> 'tags') with ordinality as g(tag, n) order by n
               ) end as tags
        from part
        where case when rest = '{}' and headrace.harmless(event, type, payload) then true
                   else headrace.refuse(headrace.problem(event, type, payload, rest), place) is null end
        offset 0
    ),
    sorted as (
        select event, place, type, payload, rest, plain, tags,
               case when cardinality(tags) > 1 then array(select distinct tag collate "C" from unnest(tags) tag order by 1) else nullif(tags, '{}') end as sorted
        from tagged
        offset 0
    ),
    item as materialized (
        select
            nextval('headrace.ids') as id,
            place,
            type,
            tags,
            sorted,
            case when sorted is null then hashtextextended(type, 0) else headrace.route(type, sorted) end as route,
            case when plain then 5 else coalesce((rest ->> 'priority')::numeric::smallint, 5) end::smallint as priority,
            case when not plain then (rest ->> 'max_retries')::smallint end as max_retries,
            coalesce(payload, '{}') as payload,
            case when not plain then nullif(rest - '{tags,priority,delay,at,max_retries}'::text[], '{}') end as details,
            case when not plain then coalesce(
                t + make_interval(secs => (rest ->> 'delay')::float8), (rest ->> 'at')::timestamptz) end as due_at
        from sorted
    ),
    stored as (
        insert into headrace.events (id, created_at, route, namespace, version, priority, max_retries, type, tags, payload, details)
        select id, t, route, q.namespace, q.version, priority, max_retries, type, nullif(tags, '{}'), payload, details
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
        -- a scalar subquery: as an EXISTS it may become a join over all routes
        where (select true from headrace.routes known
               where known.namespace = q.namespace and known.route = seen.route limit 1) is null
    )
    select array_agg(id order by place) into ids from item;
    return coalesce(ids, '{}');
end $$;
