-- Ends a delivery that is pending or in progress, for good: CANCELLED. An attempt in progress is
-- fenced off: its finish is lost, and its worker is told: see extend.
-- Returns whether this call cancelled it; a delivery that was cancelled before stays as it is.
-- actor, reason: for the log; the default actor is the caller's role, see _log_action.
-- Concurrency: a delivery has one end under any race. The call waits up to half a second for a
-- claim, a finish or a tick that holds the delivery.
-- Raises QU010, QU011, QU012, QU024 when the delivery has ended otherwise, QU023 when it keeps
-- moving between the looks of this call.
create or replace function headrace.cancel(
    namespace text, event_id bigint, queue text default 'main', reason text default null, actor text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz;
    q headrace.queues := headrace._queue_named(cancel.namespace, cancel.queue);
    stood record;
    taken headrace.taken[];
begin
    for round in 1..5 loop
        select e.status, e.attempts, e.updated_at into stood
        from headrace.event(cancel.namespace, cancel.event_id, cancel.queue) e;
        if stood.status = 'CANCELLED' then
            perform headrace._confirm_stored();
            return false;
        end if;
        perform headrace._raise_if_ended(cancel.event_id, cancel.queue, stood.status, stood.updated_at);
        taken := headrace._take_one(q, cancel.event_id, stood.status, stood.attempts, 'CANCELLED');
        if taken <> '{}' then
            t := headrace._log_time(headrace._now(), stood.updated_at);
            perform headrace._log_moves(q, t, 'CANCELLED', taken, headrace._actor(cancel.actor), cancel.reason);
            perform headrace._release_keys(q, t, taken);
            perform headrace._log_action(q.namespace, cancel.actor, 'cancel', cancel.event_id::text,
                                        jsonb_build_object('queue', q.name, 'reason',
                                                           nullif(left(cancel.reason, 1000), '')));
            return true;
        end if;
    end loop;
    perform headrace._raise_busy(cancel.event_id);
end $$;
