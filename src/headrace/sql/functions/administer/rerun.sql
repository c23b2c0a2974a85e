-- Delivers an event to a queue again whose delivery there is completed or cancelled, as a new drive:
-- ready now, under the same id. The log goes on, attempts go on growing, failures, crashes and
-- snoozes start at zero, and saved progress is dropped: the event is handled from the beginning. One
-- that had crashed its workers comes back as a suspect.
-- actor, reason: as in cancel.
-- Concurrency: of two calls one runs the event again, and the other finds it unfinished. Waits up to
-- half a second for a call that erases the event or runs it again.
-- Raises QU010, QU011, QU012 (also for an event whose retention has ended), QU023, QU024 for an
-- event that is erased or was not completed (a dead letter is for redrive), QU025 for one that is
-- unfinished, QU026 where another unfinished event holds its unique key, and QU030 outside READ
-- COMMITTED, where the call might not see that it was run again.
create or replace function headrace.rerun(
    namespace text, event_id bigint, queue text default 'main', reason text default null, actor text default null
) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
#variable_conflict use_column
declare
    q headrace.queues := headrace._queue_named(rerun.namespace, rerun.queue);
    t timestamptz;
    stood headrace.shown;
    taken headrace.taken[];
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'rerun needs READ COMMITTED: it must see what others have just done to the event';
    end if;
    perform headrace._lock(concat('event ', rerun.event_id));
    select s.* into stood from headrace.event(rerun.namespace, rerun.event_id, rerun.queue) s;
    perform headrace._raise_unless_rerunnable(q, stood);
    t := headrace._log_time(headrace._now(), stood.updated_at);
    perform headrace._take_back_unique_keys(q.namespace, array[stood.id], array[stood.details ->> 'unique'],
                                            array[stood.created_at]);
    perform headrace._keep_stored(rerun.event_id, t);
    taken := array[headrace._taken_delivery(
        rerun.event_id, stood.attempts, stood.created_at, failures => 0::smallint, crashes => 0::smallint,
        suspect => stood.crashes > 0, key => stood.key, item => 1)];
    delete from headrace.progress p where p.queue = q.id and p.event = rerun.event_id;
    perform headrace._log_moves(q, t, 'RERUN', taken, headrace._actor(rerun.actor), rerun.reason);
    perform headrace._requeue(q, t, taken);
    perform headrace._log_action(q.namespace, rerun.actor, 'rerun', rerun.event_id::text, jsonb_build_object(
        'queue', q.name, 'reason', nullif(left(rerun.reason, 1000), '')));
exception when lock_not_available then
    perform headrace._raise_busy(rerun.event_id);
end $$;
