-- Makes a paused, draining or drained queue active again.
-- actor: the name in the log (see _log_action); default: the caller's role. Raises QU001, QU010,
-- QU011.
create or replace function headrace.resume(
    namespace text, queue text default 'main', actor text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace._set_queue_state(resume.namespace, resume.queue, 'active', 'resume', resume.actor);
    perform headrace._wake((headrace._queue_named(resume.namespace, resume.queue)).id);
end $$;
