-- Makes a queue active again that was paused, or is draining or drained.
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named. Raises QU001, QU010, QU011.
create or replace function headrace.resume(namespace text, queue text default 'main', actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace.set_state(resume.namespace, resume.queue, 'active', 'resume', resume.actor);
    perform headrace.wake((headrace.its_queue(resume.namespace, resume.queue)).id);
end $$;
