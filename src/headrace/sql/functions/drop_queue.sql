-- Takes a queue away from everybody who names it, and has tick clear it: see delete_queue. Its namespace is locked by the caller.
-- Raises QU001.
create or replace function headrace.drop_queue(q headrace.queues, actor text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    update headrace.queues u set space = null, takes = false, state = 'paused', deleted_at = headrace.now() where u.id = q.id;
    delete from headrace.event_queue_state s where s.id = q.space || '/' || q.name;
    delete from headrace.saved_states s where s.queue = q.id;
    perform headrace.queue_changed(q.namespace, true);
    delete from headrace.chores c where c.queue = q.id;
    insert into headrace.chores (queue, task, made_by, actor)
    values (q.id, 'clear', pg_current_xact_id(), headrace.actor(drop_queue.actor));
end $$;
