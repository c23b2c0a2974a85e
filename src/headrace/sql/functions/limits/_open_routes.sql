-- Those of the given routes that have room under all limits of the queue, in their order.
--     groups, rooms   of each route, the group that has the least room, and its room; null: no limit
--                     is about it
--     look_at         the first time at which a rate opens another; null: none does by time alone
create or replace function headrace._open_routes(
    q headrace.queues, inout routes bigint[], t timestamptz, out groups text[], out rooms int[],
    out look_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    members headrace.membership[];
begin
    if q.limits is not null then
        members := headrace._limited_groups(q, routes);
    end if;
    if members is null or members = '{}' then
        groups := array_fill(null::text, array[cardinality(routes)]);
        rooms := array_fill(null::int, array[cardinality(routes)]);
        return;
    end if;
    select coalesce(array_agg(u.route order by u.n) filter (where f.room is distinct from 0), '{}'),
           coalesce(array_agg(f.name order by u.n) filter (where f.room is distinct from 0), '{}'),
           coalesce(array_agg(f.room order by u.n) filter (where f.room is distinct from 0), '{}'),
           min(f.look_at)
    into routes, groups, rooms, look_at
    from unnest(routes) with ordinality as u(route, n)
    left join (
        select m.route, min(r.room) as room, (array_agg(m.scope || ' ' || m.name order by r.room))[1] as name,
               case when bool_and(r.look_at is not null) filter (where r.room = 0)
                    then max(r.look_at) filter (where r.room = 0) end as look_at
        from unnest(members) m join headrace._limit_rooms(q, members, t) r on r.n = m.n
        group by m.route
    ) f on f.route = u.route;
end $$;
