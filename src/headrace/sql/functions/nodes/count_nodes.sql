-- The number of nodes of each namespace: alive (see _alive_nodes), lost (neither alive nor
-- stopped), and stopped.
create or replace function headrace.count_nodes()
returns table (namespace text, alive bigint, lost bigint, stopped bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select n.name, count(*) filter (where o.instance = any (a.living)),
           count(*) filter (where o.stopped_at is null and o.instance <> all (a.living)),
           count(*) filter (where o.stopped_at is not null)
    from (select headrace._alive_nodes(headrace._now()) as living) a
    cross join headrace.nodes o
    join headrace.namespaces n on n.id = o.namespace
    where n.name is not null and (not n.bound or headrace._has_access(n.name))
    group by n.name
    order by n.name
$$;
