-- Makes a delivery ready now: out of a claim, whose attempt is fenced off (its finish is lost), or out of its delay. One that is ready
-- because its lease ran out is fenced off, too: see take_late. The counters stay. A dead letter is redriven: see redrive. What is ready
-- otherwise stays as it is.
-- Returns whether this call changed anything. actor, reason: as in cancel.
-- Concurrency: as cancel. Raises QU010, QU011, QU012, QU024 when it is completed or cancelled, or its dead letter is
-- gone, QU023 when it is on the move all the time.
create or replace function headrace.reset(
    namespace text, event_id bigint, queue text default 'main', reason text default null, actor text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz;
    q headrace.queues := headrace.its_queue(reset.namespace, reset.queue);
    stood record;
    taken headrace.taken[];
begin
    for round in 1..5 loop
        select e.status, e.attempts, e.next_retry_at, e.updated_at,
               exists (select from headrace.dead_letters x where x.event = reset.event_id and x.queue = q.id and x.route <> 0) as dead
        into stood from headrace.event(reset.namespace, reset.event_id, reset.queue) e;
        if stood.status = 'PENDING' and stood.next_retry_at is null
           and (select l.action from headrace.last_entry(q, reset.event_id) l) is distinct from 'ABANDONED' then
            perform headrace.confirm();
            return false;
        elsif stood.dead then
            taken := headrace.revive(q, headrace.now(), array[reset.event_id], null, headrace.actor(reset.actor), reset.reason);
        else
            perform headrace.must_be_live(reset.event_id, reset.queue, stood.status, stood.updated_at);
            taken := headrace.take(q, reset.event_id, case when stood.next_retry_at is null then stood.status else 'DELAYED' end, stood.attempts);
            if taken <> '{}' then
                t := headrace.not_before(headrace.now(), stood.updated_at);
                perform headrace.note(q, t, 'RESET', taken, headrace.actor(reset.actor), reset.reason);
                perform headrace.requeue(q, t, taken);
            end if;
        end if;
        if taken <> '{}' then
            perform headrace.log_action(q.namespace, reset.actor, 'reset', reset.event_id::text,
                                        jsonb_build_object('queue', q.name, 'reason', nullif(left(reset.reason, 1000), '')));
            return true;
        end if;
    end loop;
    perform headrace.on_the_move(reset.event_id);
end $$;
