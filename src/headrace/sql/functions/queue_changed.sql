-- Brings a namespace, which its caller has locked, up to date with its queues: `guarded`, and a new version if what they take
-- has changed. The bindings of the versions before are of no use to anybody who begins now.
create or replace function headrace.queue_changed(namespace int, takes_otherwise boolean) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    update headrace.namespaces n
    set version = n.version + takes_otherwise::int,
        guarded = exists (
            select from headrace.queues q
            where q.namespace = n.id
              and (q.state = 'draining' or q.takes and coalesce(q.max_queue_depth, q.high_watermark) is not null))
    where n.id = queue_changed.namespace
$$;
