-- The routes of a namespace that a filter selects. A type may hold asterisks, each standing for any
-- characters; null means all. Tags: any of them, or all of them.
create or replace function headrace._filtered_routes(
    namespace int, types text[], tags text[], all_tags boolean
) returns bigint[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
    perform headrace._check_filter(types, tags);
    return array(
        select distinct r.route
        from unnest(coalesce(types, '{*}')) as t(pattern)
        cross join lateral (select split_part(t.pattern, '*', 1) as prefix) as p
        cross join lateral (
            -- the range lets the index find them, the pattern decides (offset 0: as a join, the
            -- index would not be used)
            select r.route from headrace.routes r
            where r.namespace = _filtered_routes.namespace
              and r.type >= p.prefix
              and r.type <= p.prefix || case when t.pattern like '%*%' then repeat(E'\U0010FFFF', 200) else '' end
              and r.type like headrace._like_pattern(t.pattern)
              and (_filtered_routes.tags is null
                   or case when all_tags then r.tags @> _filtered_routes.tags else r.tags && _filtered_routes.tags end)
            offset 0
        ) r);
end $$;
