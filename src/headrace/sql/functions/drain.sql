-- Drains a queue: an event that it takes is refused (QU051), what it has is worked off, and when all of that has ended, tick
-- pauses it. Publishers that began before may still commit into it; what comes too late waits in the paused queue.
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named. Raises QU001, QU010, QU011.
create or replace function headrace.drain(namespace text, queue text default 'main', actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace.set_state(drain.namespace, drain.queue, 'draining', 'drain', drain.actor);
    perform headrace.wake((headrace.its_queue(drain.namespace, drain.queue)).id);
end $$;
