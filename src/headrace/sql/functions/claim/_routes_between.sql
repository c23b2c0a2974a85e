-- The routes from `low` to `high` that have work at a priority of a queue, suspects or others, by a
-- loose index scan: one probe per route, for any number of deliveries.
--     firsts   the number of the first row of each
create or replace function headrace._routes_between(
    queue int, suspect boolean, priority smallint, low bigint, high bigint, most int,
    out routes bigint[], out firsts bigint[]
)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    next bigint := low;
    first bigint;
begin
    routes := '{}'; firsts := '{}';
    loop
        select r.route, r.seq into next, first from headrace.ready r
        where r.queue = queue and r.suspect = suspect and r.priority = priority and r.route >= next and r.route <= high
        order by r.route, r.seq limit 1;
        exit when not found;
        routes := routes || next; firsts := firsts || first;
        exit when cardinality(routes) >= most or next = high;
        next := next + 1;
    end loop;
end $$;
