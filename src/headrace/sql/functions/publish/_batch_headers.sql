-- The headers of events, checked and made ready for storing, with the queues that take them: a head
-- for each header. `places`: the place of the first event that has it, for the error.
-- A route that is new to this version of the namespace's queues gets its binding here. No publisher
-- waits for another: two publishers that make a binding at the same time store it twice, with the
-- same content.
create or replace function headrace._batch_headers(
    space headrace.namespaces, headers jsonb[], places bigint[], t timestamptz
) returns headrace.head[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    heads headrace.head[];
begin
    -- offset 0 keeps the planner from extracting a part again in every expression that uses it
    with checked as (
        select u.n, u.header, coalesce(u.header ->> 'type', 'event') as type,
               case when u.header ? 'tags' then array(
                   select btrim(tag) from jsonb_array_elements_text(u.header -> 'tags') with ordinality as g(tag, n)
                   order by n
               ) end as tags
        from unnest(headers, places) with ordinality as u(header, place, n)
        where headrace._raise_problem(headrace._header_problem(u.header), u.place) is null
        offset 0
    ),
    sorted as (
        select n, header, type, nullif(tags, '{}') as tags,
               case when cardinality(tags) > 1 then array(select distinct tag collate "C" from unnest(tags) tag
                                                          order by 1) else nullif(tags, '{}') end as sorted
        from checked
        offset 0
    ),
    routed as (
        select n, header, type, tags, sorted, headrace._route(type, sorted) as route from sorted offset 0
    )
    -- the names and the order are those of headrace.head
    select array_agg(h::headrace.head order by h.n) into heads
    from (
        select r.n, r.type, r.tags, r.sorted, r.route,
               coalesce((r.header ->> 'priority')::numeric::smallint, 5::smallint) as priority,
               (r.header ->> 'max_retries')::smallint as max_retries,
               nullif(r.header - '{type,tags,priority,delay,at,max_retries,key,idempotency_key}'::text[]
                               - '{settle,at_latest}'::text[], '{}') as details,
               coalesce(t + make_interval(secs => (r.header ->> 'delay')::float8), (r.header ->> 'at')::timestamptz)
                   as due_at,
               r.header ->> 'key' as key,
               r.header ->> 'idempotency_key' as idempotency_key,
               -- a scalar subquery: a join may become a join over all bindings
               (select b.queues from headrace.bindings b
                where b.route = r.route and b.namespace = space.id and b.version = space.version
                  and b.created_at > t - interval '30 days' limit 1) as queues,  -- see _forget_routes
               r.header ->> 'unique' as unique_key, r.header ->> 'debounce' as debounce,
               make_interval(secs => (r.header ->> 'settle')::float8) as settle,
               make_interval(secs => (r.header ->> 'at_latest')::float8) as at_latest
        from routed r
    ) h;

    if exists (select from unnest(heads) h where h.queues is null) then
        with fresh as materialized (
            select f.*, headrace._queues_taking(space.id, space.version, f.type, f.sorted) as queues
            from (select distinct on (h.route) h.route, h.type, h.sorted from unnest(heads) h where h.queues is null) f
        ),
        bound as (
            insert into headrace.bindings (namespace, version, route, queues, type, created_at)
            select space.id, space.version, f.route, f.queues, case when f.sorted is null then f.type end, t
            from fresh f
        ),
        known as (
            insert into headrace.routes (namespace, route, type, tags, created_at)
            select space.id, f.route, f.type, coalesce(f.sorted, '{}'), t from fresh f
            where (select true from headrace.routes k
                   where k.route = f.route and k.namespace = space.id and k.created_at > t - interval '1 day'
                   limit 1) is null
        )
        select array_agg(w::headrace.head order by w.n) into heads
        from (
            select h.n, h.type, h.tags, h.sorted, h.route, h.priority, h.max_retries, h.details, h.due_at, h.key,
                   h.idempotency_key, coalesce(h.queues, f.queues) as queues, h.unique_key, h.debounce,
                   h.settle, h.at_latest
            from unnest(heads) h left join fresh f on f.route = h.route) w;
    end if;
    return heads;
end $$;
