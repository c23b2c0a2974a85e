-- Pauses a queue: publishers still publish into it, and no worker gets a delivery until resume.
-- Deliveries in progress go on.
-- actor: the name in the log (see _log_action); default: the caller's role. Raises QU001, QU010,
-- QU011.
create or replace function headrace.pause(
    namespace text, queue text default 'main', actor text default null
) returns void
language sql security definer
set search_path = pg_catalog, pg_temp
as $$ select headrace._set_queue_state(pause.namespace, pause.queue, 'paused', 'pause', pause.actor) $$;
