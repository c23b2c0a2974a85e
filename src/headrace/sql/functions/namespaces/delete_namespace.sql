-- Deletes a namespace with its queues, schedules and nodes. A namespace with unfinished deliveries
-- or dead letters is deleted only with_deliveries: all of them are then cancelled and lost. Its
-- name is free at once; tick clears its queues, step by step: see delete_queue. Its events and its
-- log can no longer be queried; retention drops them with their months.
-- actor: the name in the log (see _log_action); default: the caller's role.
-- Concurrency: as change_queue. A publisher whose transaction began before gets no error, as with
-- delete_queue: its events are cancelled. Raises QU001, QU010, QU054.
create or replace function headrace.delete_namespace(
    namespace text, with_deliveries boolean default false, actor text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n headrace.namespaces := headrace._lock_namespace(delete_namespace.namespace);
    busy text;
begin
    select string_agg(q.name, ', ' order by q.name) into busy
    from headrace.queues q where q.space = n.name and not headrace._queue_is_empty(q);
    if with_deliveries is not true and busy is not null then
        raise exception using errcode = 'QU054',
            message = format(
                'the namespace %L has unfinished deliveries or dead letters, which would be lost with it, in: %s',
                n.name, busy);
    end if;
    perform headrace._drop_queue(q, delete_namespace.actor) from headrace.queues q where q.space = n.name;
    update headrace.namespaces u set name = null, deleted_at = headrace._now() where u.id = n.id;
    -- after that: the lock has waited for every session that was scheduling a task
    delete from headrace.scheduled_tasks s where s.namespace = n.id;
    delete from headrace.nodes o where o.namespace = n.id;
    delete from headrace.instances i where i.namespace = n.id;
    perform headrace._log_action(n.id, delete_namespace.actor, 'delete_namespace', n.name);
end $$;
