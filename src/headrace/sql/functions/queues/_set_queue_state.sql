-- Sets the state of a queue, from any state, and logs the actor: see pause, resume, drain.
create or replace function headrace._set_queue_state(
    namespace text, queue text, state text, action text, actor text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n headrace.namespaces := headrace._lock_namespace(_set_queue_state.namespace);
    q headrace.queues;
begin
    q := headrace._queue_named(_set_queue_state.namespace, _set_queue_state.queue);
    if q.state <> _set_queue_state.state then
        update headrace.queues u set state = _set_queue_state.state where u.id = q.id;
        perform headrace._queues_changed(n.id, false);
        perform headrace._log_action(n.id, _set_queue_state.actor, _set_queue_state.action, q.name);
    end if;
end $$;
