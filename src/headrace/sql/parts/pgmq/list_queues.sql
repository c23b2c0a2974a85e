-- Every queue that can be named here: those of pgmq.create, and each namespace's main and dead
-- letters. An ambiguous name is left out: see _queue.
create or replace function pgmq.list_queues() returns setof pgmq.queue_record
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(q.metadata ->> 'name', q.name)::varchar, false, false, q.created_at
    from headrace.queues q where q.space = 'pgmq' and q.name <> 'main'
        and (not q.bound or headrace._has_access(q.space))
    union all
    select (headrace.queue_name_for_namespace(n.name) || suffix)::varchar, false, false, min(n.created_at)
    from headrace.namespaces n cross join unnest('{"",_dlq}'::text[]) suffix
    where n.name <> 'pgmq'
    group by 1 having count(*) = 1 and bool_and(not n.bound or headrace._has_access(n.name))
    order by 1
$$;
