-- Pauses a draining queue in which every delivery has ended. Concurrency: never waits; if the
-- namespace is locked, the next tick pauses the queue.
create or replace function headrace._pause_drained(q headrace.queues) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    if headrace._depth(q.id, 1) > 0 or exists (select from headrace.deliveries d where d.queue = q.id) then
        return;
    end if;
    perform from headrace.namespaces n where n.id = q.namespace for no key update skip locked;
    if found then
        update headrace.queues u set state = 'paused' where u.id = q.id and u.state = 'draining';
        perform headrace._queues_changed(q.namespace, false);
    end if;
end $$;
