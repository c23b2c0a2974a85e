-- Whether workers that are not nodes are active in a queue: they do not declare the types that they
-- handle, so that no type can be called unhandled. living: the result of _alive_nodes.
create or replace function headrace._has_other_workers(q headrace.queues, t timestamptz, living uuid[]) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select exists (
               select from headrace.leases l where l.queue = q.id and l.worker not in (
                   select o.worker from headrace.nodes o where o.namespace = q.namespace))
        or not exists (select from headrace.nodes o where o.namespace = q.namespace and o.instance = any (living))
           and exists (
               select from headrace.stats s where s.queue = q.id and s.minute >= t - interval '6 minutes'
                   and s.attempts > 0)
$$;
