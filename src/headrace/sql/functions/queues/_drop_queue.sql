-- Makes a queue unknown by its name, and leaves it to tick to clear: see delete_queue. The caller
-- has locked its namespace. The nodes that hold claims of it are notified: their heartbeats find no
-- queue any more, and they interrupt their handlers.
-- Raises QU001.
create or replace function headrace._drop_queue(q headrace.queues, actor text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    update headrace.queues u set space = null, takes = false, state = 'paused', deleted_at = headrace._now()
    where u.id = q.id;
    delete from headrace.event_queue_state s where s.id = q.space || '/' || q.name;
    delete from headrace.saved_states s where s.queue = q.id;
    perform headrace._queues_changed(q.namespace, true);
    delete from headrace.chores c where c.queue = q.id;
    insert into headrace.chores (queue, task, made_by, actor)
    values (q.id, 'clear', pg_current_xact_id(), headrace._actor(_drop_queue.actor));
    perform headrace._notify_holder(h.instance, null)
    from (select distinct l.instance from headrace.leases l where l.queue = q.id) h;
end $$;
