-- The pairs of priority and route, beside those of suspects, from which deliveries may be claimed
-- before one of another pair: the more urgent ones, then, of the same priority, those of its own
-- group (see fair_by in change_queue), and then group by group.
--     value, takes_turns   the group of the pair, and whether it takes turns with that of the delivery
--     limits, rooms        the numbers of the groups with limits that the pair is in and the delivery
--                          is not, and how many may start now in each
create or replace function headrace._others_in_line(q headrace.queues, its_priority smallint, its_route bigint)
returns table (priority smallint, route bigint, value text, takes_turns boolean, limits int[], rooms int[])
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = on
set enable_sort = on
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    its_value constant text := (headrace._fair_values(q, array[its_route]))[1];
begin
    return query
    with pair as materialized (
        select p.priority, p.route, row_number() over (order by p.priority, p.route) as n
        from headrace._ready_routes(q.id, 1000) p
        where not p.suspect
          and (p.priority < its_priority or p.priority = its_priority and p.route <> its_route)
    ),
    member as materialized (
        select m.* from unnest(case when q.limits is not null then headrace._limited_groups(
            q, array(select p.route from pair p) || its_route) end) m
    ),
    foreigner as materialized (
        select m.* from member m where m.n <> all (array(select o.n from member o where o.route = its_route))
    ),
    room as (
        select r.n, r.room
        from headrace._limit_rooms(q, array(select f::headrace.membership from foreigner f), headrace._now()) r
    ),
    bound as materialized (
        select f.route, array_agg(f.n order by f.n) as limits, array_agg(r.room order by f.n) as rooms
        from foreigner f join room r on r.n = f.n group by f.route
    )
    select p.priority, p.route, v.value, q.fair_by is not null and v.value <> its_value,
           coalesce(b.limits, '{}'), coalesce(b.rooms, '{}')
    from pair p
    join unnest(headrace._fair_values(q, array(select o.route from pair o order by o.n))) with ordinality as v(value, n)
        on v.n = p.n
    left join bound b on b.route = p.route
    order by p.priority, q.fair_by is not null and v.value <> its_value, v.value, p.route;
end $$;
