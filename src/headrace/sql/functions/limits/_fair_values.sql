-- The group of each route that takes turns with the other groups: the first of its tags that has
-- the prefix of fair_by; '': it has none. All are '' in a queue without fair_by.
create or replace function headrace._fair_values(q headrace.queues, routes bigint[]) returns text[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    return (
        select case when q.fair_by is null then array_fill(''::text, array[cardinality(routes)]) else array(
            select coalesce((
                select (select min(t) from unnest(r.tags) t where starts_with(t, q.fair_by ->> 'tag'))
                from headrace.routes r where r.route = u.route and r.namespace = q.namespace limit 1), '')
            from unnest(routes) with ordinality as u(route, n) order by u.n) end
    );
end $$;
