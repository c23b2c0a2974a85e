-- The routes from `low` to `high` that have work at a priority of a queue, suspects or others, by a
-- loose index scan: one probe per route, for any number of deliveries.
create or replace function headrace._routes_between(
    queue int, suspect boolean, priority smallint, low bigint, high bigint, most int
) returns bigint[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    routes bigint[] := '{}';
    next bigint := low;
begin
    loop
        select r.route into next from headrace.ready r
        where r.queue = queue and r.suspect = suspect and r.priority = priority and r.route >= next and r.route <= high
        order by r.route limit 1;
        exit when not found;
        routes := routes || next;
        exit when cardinality(routes) >= most or next = high;
        next := next + 1;
    end loop;
    return routes;
end $$;
