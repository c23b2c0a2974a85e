-- The next routes that have work at a priority of a queue, suspects or others: about `size`,
-- beginning at a random route and going round once; see _routes_between. position: where to go on,
-- as the last call returned it; routes is null when all have been told. watched: only these routes,
-- at once; null: all.
create or replace function headrace._next_routes(
    queue int, suspect boolean, priority smallint, watched bigint[], size int, inout "position" bigint[],
    out routes bigint[]
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    first constant bigint := -9223372036854775808;
    last constant bigint := 9223372036854775807;
    start bigint;
begin
    if "position" = '{}' then
        return;
    elsif watched is not null then
        routes := array(
            select w.route from (select u.route from unnest(watched) as u(route) order by random()) w
            -- a scalar subquery: as an EXISTS it may become a join over the whole queue
            where (select true from headrace.ready r
                   where r.queue = queue and r.suspect = suspect and r.priority = priority and r.route = w.route
                   limit 1));
        "position" := '{}';
        return;
    elsif "position" is null then
        start := ((random() - 0.5) * 1.8e19)::bigint;
        "position" := array[start, last, first, start - 1];    -- from there to the last, then from the first to there
    end if;
    routes := '{}';
    while "position" <> '{}' and cardinality(routes) < size loop
        routes := routes || (headrace._routes_between(
            queue, suspect, priority, "position"[1], "position"[2], size - cardinality(routes))).routes;
        if cardinality(routes) < size or routes[size] = "position"[2] then
            "position" := "position"[3:];
        else
            "position"[1] := routes[size] + 1;
        end if;
    end loop;
end $$;
