-- How many nodes each namespace has: alive, as `nodes` says it, lost (neither heard of nor stopped), and stopped.
create or replace function headrace.count_nodes()
returns table (namespace text, alive bigint, lost bigint, stopped bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select n.name, count(*) filter (where o.stopped_at is null and o.last_heartbeat > t.now - interval '90 seconds'),
           count(*) filter (where o.stopped_at is null and o.last_heartbeat <= t.now - interval '90 seconds'),
           count(*) filter (where o.stopped_at is not null)
    from headrace.nodes o join headrace.namespaces n on n.id = o.namespace, (select headrace.now() as now) t
    where n.name is not null
    group by n.name
    order by n.name
$$;
