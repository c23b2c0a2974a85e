-- Deletes a queue. One that has unfinished deliveries or dead letters is deleted only with_deliveries: then they are lost,
-- cancelled one and all, and the log says so. `main` is not deleted; change_queue with takes := false switches it off.
-- It is gone at once for everybody who names it. tick clears it, step by step: what waits in it, what publishers put into it
-- that began before, what claims leave behind when their leases end. The log keeps its name.
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named.
-- Concurrency: as change_queue. Raises QU001 for main, QU010, QU011, QU053.
create or replace function headrace.delete_queue(
    namespace text, queue text, with_deliveries boolean default false, actor text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n headrace.namespaces := headrace.lock_namespace(delete_queue.namespace);
    q headrace.queues := headrace.its_queue(delete_queue.namespace, delete_queue.queue);
begin
    if q.name = 'main' then
        raise exception using errcode = 'QU001', message = 'the queue main is not deleted: change_queue with takes := false switches it off';
    elsif with_deliveries is not true and not headrace.is_empty(q) then
        raise exception using errcode = 'QU053',
            message = format('the queue %L has unfinished deliveries or dead letters, which would be lost with it', q.name);
    end if;
    perform headrace.drop_queue(q, delete_queue.actor);
    perform headrace.log_action(n.id, delete_queue.actor, 'delete_queue', q.name);
end $$;
