-- The routes of a namespace that a filter selects. A type may hold asterisks, each standing for any
-- characters; null means all. Tags: any of them, or all of them.
create function headrace.matching_routes(namespace int, types text[], tags text[], all_tags boolean) returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select coalesce(array_agg(distinct r.route), '{}')
    from unnest(coalesce(types, '{*}')) as t(pattern)
    cross join lateral (select split_part(t.pattern, '*', 1) as prefix) as p
    join headrace.routes r
      on r.namespace = matching_routes.namespace
     -- the range lets the index find them, the pattern decides
     and r.type >= p.prefix and r.type <= p.prefix || case when t.pattern like '%*%' then U&'\+10FFFF' else '' end
     and r.type like replace(replace(replace(replace(t.pattern, '\', '\\'), '%', '\%'), '_', '\_'), '*', '%')
    where matching_routes.tags is null
       or case when all_tags then r.tags @> matching_routes.tags else r.tags && matching_routes.tags end
$$;
