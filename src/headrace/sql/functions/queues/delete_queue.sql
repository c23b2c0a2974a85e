-- Deletes a queue. A queue with unfinished deliveries or dead letters is deleted only
-- with_deliveries: all of them are then cancelled and lost, and the log records it. `main` cannot
-- be deleted; change_queue with takes := false switches it off. The queue's name is unknown at
-- once. tick clears the queue, step by step: the waiting deliveries, the deliveries of publishers
-- that began before, and the unfinished deliveries of claims when their leases end. The log keeps
-- its name.
-- actor: the name in the log (see _log_action); default: the caller's role.
-- Concurrency: as change_queue. Raises QU001 for main, QU010, QU011, QU053.
create or replace function headrace.delete_queue(
    namespace text, queue text, with_deliveries boolean default false, actor text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n headrace.namespaces := headrace._lock_namespace(delete_queue.namespace);
    q headrace.queues := headrace._queue_named(delete_queue.namespace, delete_queue.queue);
begin
    if q.name = 'main' then
        raise exception using errcode = 'QU001',
            message = 'the queue main is not deleted: change_queue with takes := false switches it off';
    elsif with_deliveries is not true and not headrace._queue_is_empty(q) then
        raise exception using errcode = 'QU053',
            message = format('the queue %L has unfinished deliveries or dead letters, which would be lost with it',
                             q.name);
    end if;
    perform headrace._drop_queue(q, delete_queue.actor);
    perform headrace._log_action(n.id, delete_queue.actor, 'delete_queue', q.name);
end $$;
