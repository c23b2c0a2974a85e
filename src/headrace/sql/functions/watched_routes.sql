-- The routes that a filter selects and that have work in a queue, or, where a thousand have, all that it selects: see
-- matching_routes. A queue has seldom work on many routes at once, while of those that ever were (a tag for every
-- customer, say) there may be a hundred thousand.
create or replace function headrace.watched_routes(q headrace.queues, types text[], tags text[], all_tags boolean) returns bigint[]
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
    perform headrace.check_filter(types, tags);
    foreach suspected in array '{f,t}'::boolean[] loop
        urgency := -1;
        loop
            select r.priority into urgency from headrace.ready r
            where r.queue = q.id and r.suspect = suspected and r.priority > urgency
            order by r.priority limit 1;
            exit when not found;
            busy := busy || headrace.routes_between(
                q.id, suspected, urgency, -9223372036854775808, 9223372036854775807, 1000 - cardinality(busy));
            if cardinality(busy) >= 1000 then
                return headrace.matching_routes(q.namespace, types, tags, all_tags);
            end if;
        end loop;
    end loop;
    patterns := array(select headrace.pattern(p) from unnest(types) p);
    return array(
        select distinct b.route from unnest(busy) as b(route)
        -- a scalar subquery: as an EXISTS it may become a join over all routes
        where (select true from headrace.routes r
               where r.route = b.route and r.namespace = q.namespace
                 and (types is null or r.type like any (patterns))
                 and (watched_routes.tags is null
                      or case when all_tags then r.tags @> watched_routes.tags else r.tags && watched_routes.tags end)
               limit 1));
end $$;
