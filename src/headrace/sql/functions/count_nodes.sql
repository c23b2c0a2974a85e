-- How many nodes each namespace has: alive, as `nodes` says it, lost (neither heard of nor stopped), and stopped.
create or replace function headrace.count_nodes()
returns table (namespace text, alive bigint, lost bigint, stopped bigint)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select n.name, count(*) filter (where o.stopped_at is null and not o.is_lost), count(*) filter (where o.stopped_at is null and o.is_lost),
           count(*) filter (where o.stopped_at is not null)
    from (
        select s.namespace, s.stopped_at, s.last_heartbeat <= t.now - interval '90 seconds' or d.instance is not null as is_lost
        from headrace.nodes s left join headrace.dead_instances() d(instance) on d.instance = s.instance, (select headrace.now() as now) t
    ) o
    join headrace.namespaces n on n.id = o.namespace
    where n.name is not null
    group by n.name
    order by n.name
$$;
