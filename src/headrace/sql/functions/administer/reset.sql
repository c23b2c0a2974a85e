-- Makes a delivery ready now: out of a claim, whose attempt is fenced off (its finish is lost, and
-- its worker is told: see extend), or out of its delay. A delivery that is ready because its lease
-- expired is fenced off, too: see _take_late. The counters stay. A dead letter is redriven: see
-- redrive. Other ready deliveries stay as they are.
-- Returns whether this call changed anything. actor, reason: as in cancel.
-- Concurrency: as cancel. Raises QU010, QU011, QU012, QU024 when the delivery is completed or
-- cancelled, or its dead letter is gone, QU023 when it keeps moving between the looks of this call.
create or replace function headrace.reset(
    namespace text, event_id bigint, queue text default 'main', reason text default null, actor text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz;
    q headrace.queues := headrace._queue_named(reset.namespace, reset.queue);
    stood record;
    taken headrace.taken[];
begin
    for round in 1..5 loop
        select e.status, e.attempts, e.next_retry_at, e.updated_at,
               exists (select from headrace.dead_letters x where x.event = reset.event_id and x.queue = q.id
                           and x.route <> 0) as dead
        into stood from headrace.event(reset.namespace, reset.event_id, reset.queue) e;
        if stood.status = 'PENDING' and stood.next_retry_at is null
           and (select l.action from headrace._last_log_entry(q, reset.event_id) l) is distinct from 'ABANDONED' then
            perform headrace._confirm_stored();
            return false;
        elsif stood.dead then
            taken := headrace._revive(q, headrace._now(), array[reset.event_id], null, headrace._actor(reset.actor),
                                      reset.reason);
        else
            perform headrace._raise_if_ended(reset.event_id, reset.queue, stood.status, stood.updated_at);
            taken := headrace._take_one(q, reset.event_id, case when stood.next_retry_at is null then stood.status
                                                                else 'DELAYED' end, stood.attempts, 'RESET');
            if taken <> '{}' then
                t := headrace._log_time(headrace._now(), stood.updated_at);
                perform headrace._log_moves(q, t, 'RESET', taken, headrace._actor(reset.actor), reset.reason);
                perform headrace._requeue(q, t, taken);
            end if;
        end if;
        if taken <> '{}' then
            perform headrace._log_action(q.namespace, reset.actor, 'reset', reset.event_id::text,
                                        jsonb_build_object('queue', q.name, 'reason',
                                                           nullif(left(reset.reason, 1000), '')));
            return true;
        end if;
    end loop;
    perform headrace._raise_busy(reset.event_id);
end $$;
