-- Deletes a queue. One that has unfinished deliveries or dead letters is deleted only with_deliveries: then they are lost,
-- cancelled one and all, and the log says so. `main` is not deleted; change_queue with takes := false switches it off.
-- It is gone at once for everybody who names it. tick clears it, step by step: what waits in it, what publishers put into it
-- that began before, what claims leave behind when their leases end. The log keeps its name.
-- actor: who did it, for the log; the session's user if nobody is named.
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
    elsif length(actor) > 200 then
        raise exception using errcode = 'QU001', message = 'the name of an actor has at most 200 characters';
    elsif with_deliveries is not true and (
        exists (select from headrace.deliveries d where d.queue = q.id) or exists (select from headrace.dead_letters x where x.queue = q.id))
    then
        raise exception using errcode = 'QU053',
            message = format('the queue %L has unfinished deliveries or dead letters, which would be lost with it', q.name);
    end if;
    update headrace.queues u set space = null, takes = false, state = 'paused' where u.id = q.id;
    perform headrace.queue_changed(n.id, true);
    delete from headrace.chores c where c.queue = q.id;
    insert into headrace.chores (queue, task, made_by, actor)
    values (q.id, 'clear', pg_current_xact_id(), coalesce(nullif(delete_queue.actor, ''), session_user));
end $$;
