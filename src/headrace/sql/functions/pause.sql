-- Pauses a queue: events are still published into it, and nobody gets any of them until resume. What is in work goes on.
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named. Raises QU001, QU010, QU011.
create or replace function headrace.pause(namespace text, queue text default 'main', actor text default null) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select headrace.set_state(pause.namespace, pause.queue, 'paused', 'pause', pause.actor) $$;
