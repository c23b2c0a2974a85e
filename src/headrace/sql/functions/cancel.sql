-- Ends a delivery that waits or is in work, for good: CANCELLED. The attempt in work is fenced off: its finish is lost.
-- Returns whether this call did it; one that was cancelled before stays as it is.
-- actor, reason: who and why, for the log; the actor is the caller's role if nobody is named, see log_action.
-- Concurrency: one end, whoever races: it waits for a claim, a finish or a tick that has the delivery, half a second long.
-- Raises QU010, QU011, QU012, QU024 when it has ended otherwise, QU023 when it is on the move all the time.
create or replace function headrace.cancel(
    namespace text, event_id bigint, queue text default 'main', reason text default null, actor text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz;
    q headrace.queues := headrace.its_queue(cancel.namespace, cancel.queue);
    stood record;
    taken headrace.taken[];
begin
    for round in 1..5 loop
        select e.status, e.attempts, e.updated_at into stood from headrace.event(cancel.namespace, cancel.event_id, cancel.queue) e;
        if stood.status = 'CANCELLED' then
            perform headrace.confirm();
            return false;
        end if;
        perform headrace.must_be_live(cancel.event_id, cancel.queue, stood.status, stood.updated_at);
        taken := headrace.take(q, cancel.event_id, stood.status, stood.attempts);
        if taken <> '{}' then
            t := headrace.not_before(headrace.now(), stood.updated_at);
            perform headrace.note(q, t, 'CANCELLED', taken, headrace.actor(cancel.actor), cancel.reason);
            perform headrace.pass_on(q, t, taken);
            perform headrace.log_action(q.namespace, cancel.actor, 'cancel', cancel.event_id::text,
                                        jsonb_build_object('queue', q.name, 'reason', nullif(left(cancel.reason, 1000), '')));
            return true;
        end if;
    end loop;
    perform headrace.on_the_move(cancel.event_id);
end $$;
