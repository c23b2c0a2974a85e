-- Those of the given routes that have room under all limits of the queue, in their order. look_at:
-- the first time at which a rate opens another; null: none does by time alone.
create or replace function headrace._open_routes(
    q headrace.queues, inout routes bigint[], t timestamptz, out look_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    members headrace.membership[];
    full_ones bigint[];
begin
    if q.limits is not null then
        members := headrace._limited_groups(q, routes);
    end if;
    if members is null or members = '{}' then
        return;
    end if;
    select array_agg(f.route), min(f.look_at) into full_ones, look_at from (
        select m.route, case when bool_and(r.look_at is not null) then max(r.look_at) end as look_at
        from unnest(members) m join headrace._limit_rooms(q, members, t) r on r.n = m.n
        where r.room = 0
        group by m.route
    ) f;
    if full_ones is not null then
        routes := array(select u.route from unnest(routes) with ordinality as u(route, n)
                        where not exists (select from unnest(full_ones) f where f = u.route) order by u.n);
    end if;
end $$;
