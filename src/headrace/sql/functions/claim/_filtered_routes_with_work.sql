-- The routes that a filter selects and that have work in a queue, or, where a thousand routes have
-- work, all that it selects: see _filtered_routes. A queue seldom has work on many routes at once,
-- while the routes that ever existed (a tag for every customer, say) may be a hundred thousand.
create or replace function headrace._filtered_routes_with_work(
    q headrace.queues, types text[], tags text[], all_tags boolean
) returns bigint[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    patterns text[];
    busy bigint[] := '{}';
    suspected boolean;
    urgency smallint;
begin
    perform headrace._check_filter(types, tags);
    foreach suspected in array '{f,t}'::boolean[] loop
        urgency := -1;
        loop
            select r.priority into urgency from headrace.ready r
            where r.queue = q.id and r.suspect = suspected and r.priority > urgency
            order by r.priority limit 1;
            exit when not found;
            busy := busy || (headrace._routes_between(
                q.id, suspected, urgency, -9223372036854775808, 9223372036854775807, 1000 - cardinality(busy))).routes;
            if cardinality(busy) >= 1000 then
                return headrace._filtered_routes(q.namespace, types, tags, all_tags);
            end if;
        end loop;
    end loop;
    patterns := array(select headrace._like_pattern(p) from unnest(types) p);
    return array(
        select distinct b.route from unnest(busy) as b(route)
        -- a scalar subquery: as an EXISTS it may become a join over all routes
        where (select true from headrace.routes r
               where r.route = b.route and r.namespace = q.namespace
                 and (types is null or r.type like any (patterns))
                 and (_filtered_routes_with_work.tags is null
                      or case when all_tags then r.tags @> _filtered_routes_with_work.tags
                              else r.tags && _filtered_routes_with_work.tags end)
               limit 1));
end $$;
