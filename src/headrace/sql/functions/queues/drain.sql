-- Drains a queue: publish refuses an event that it takes (QU051), workers work off its deliveries,
-- and when all of them have ended, tick pauses it. Publishers that began before may still commit
-- into it; deliveries that come too late wait in the paused queue.
-- actor: the name in the log (see _log_action); default: the caller's role. Raises QU001, QU010,
-- QU011.
create or replace function headrace.drain(
    namespace text, queue text default 'main', actor text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace._set_queue_state(drain.namespace, drain.queue, 'draining', 'drain', drain.actor);
    perform headrace._wake((headrace._queue_named(drain.namespace, drain.queue)).id);
end $$;
