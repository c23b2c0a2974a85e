-- The routes from `low` to `high` that have unsuspected work at a priority of a queue, by a loose index scan:
-- one probe per route, however many deliveries it has.
create function headrace.routes_between(queue int, priority smallint, low bigint, high bigint, most int) returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
    with recursive walk as (
        (select r.route from headrace.ready r
         where r.queue = routes_between.queue and r.priority = routes_between.priority and not r.suspect
           and r.route >= low and r.route <= high
         order by r.route limit 1)
        union all
        select (select r.route from headrace.ready r
                where r.queue = routes_between.queue and r.priority = routes_between.priority and not r.suspect
                  and r.route > walk.route and r.route <= high
                order by r.route limit 1)
        from walk where walk.route is not null
    )
    select coalesce(array_agg(w.route), '{}')
    from (select walk.route from walk where walk.route is not null limit most) w
$$;
