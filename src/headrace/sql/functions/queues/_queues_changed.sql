-- Brings a namespace, which the caller has locked, up to date with its queues: `guarded`, and a new
-- version if the types and tags that they take have changed. Transactions that begin now no longer
-- use the bindings of earlier versions.
create or replace function headrace._queues_changed(namespace int, takes_otherwise boolean) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    update headrace.namespaces n
    set version = n.version + takes_otherwise::int,
        guarded = exists (
            select from headrace.queues q
            where q.namespace = n.id
              and (q.state = 'draining' or q.takes and coalesce(q.max_queue_depth, q.high_watermark) is not null))
    where n.id = _queues_changed.namespace
$$;
