-- The workers and schedules that have stopped: see attention. home: only this namespace; null: all.
-- living: the result of _alive_nodes.
create or replace function headrace._attention_to_workers(
    home int, t timestamptz, living uuid[]
) returns setof headrace.finding
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    with claim as materialized (
        select l.namespace, l.queue, l.worker, l.picked_at,
               coalesce(h.size, case when l.events is null then 0
                                     else l.size - coalesce(bit_count(l.done), 0) end) as size
        from headrace.leases l
        left join (select d.lease, count(*) as size from headrace.held d group by d.lease) h on h.lease = l.id
        where l.until >= t - interval '1 minute' and (home is null or l.namespace = home)  -- else upkeep reports it
    ),
    held as materialized (
        select c.*, o.node_id, o.last_heartbeat,
               case when o.node_id is not null then o.instance = any (living) end as is_alive
        from claim c left join headrace.nodes o on o.namespace = c.namespace and o.worker = c.worker
        where c.size > 0
    )
    select 'node_lost', 'critical', n.name::text, null::text,
           jsonb_build_object('node_id', h.node_id, 'worker_id', h.worker, 'deliveries', sum(h.size)), h.last_heartbeat
    from held h join headrace.namespaces n on n.id = h.namespace
    where not h.is_alive
    group by n.name, h.node_id, h.worker, h.last_heartbeat
    union all
    select 'orphaned', 'notice', q.space, q.name,
           jsonb_build_object('deliveries', sum(h.size), 'workers', (array_agg(distinct h.worker))[:10]),
           min(h.picked_at)
    from held h join headrace.queues q on q.id = h.queue
    where h.is_alive is null and h.picked_at < t - interval '5 minutes' and q.space is not null
    group by q.space, q.name
    union all
    select 'schedule_late', 'warning', n.name, null, jsonb_build_object('name', s.name, 'due_at', s.due_at), s.due_at
    from headrace.scheduled_tasks s join headrace.namespaces n on n.id = s.namespace
    where s.due_at < t - interval '1 minute' and s.active and (home is null or s.namespace = home)
    union all
    select 'schedule_unplanned', 'warning', n.name, null, jsonb_build_object('name', s.name), s.planned_until
    from headrace.scheduled_tasks s join headrace.namespaces n on n.id = s.namespace
    where s.due_at is null and s.active and s.planned_until < t - interval '1 minute'
      and (home is null or s.namespace = home)
$$;
