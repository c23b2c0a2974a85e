-- Brings a queue into a state, whichever it is in, and writes down who did it: see pause, resume, drain.
create or replace function headrace.set_state(namespace text, queue text, state text, action text, actor text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    n headrace.namespaces := headrace.lock_namespace(set_state.namespace);
    q headrace.queues;
begin
    q := headrace.its_queue(set_state.namespace, set_state.queue);
    if q.state <> set_state.state then
        update headrace.queues u set state = set_state.state where u.id = q.id;
        perform headrace.queue_changed(n.id, false);
        perform headrace.log_action(n.id, set_state.actor, set_state.action, q.name);
    end if;
end $$;
