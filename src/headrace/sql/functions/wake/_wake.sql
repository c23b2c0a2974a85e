-- Tells the sleeping workers of a queue that there may be work. Only a hint: polling alone is
-- correct. NOTIFY takes a database-wide lock at commit, under which transactions commit one by one,
-- so it is sent only when a worker sleeps: a sleeping worker holds the queue's advisory lock
-- shared, and a try-lock shows that in a quarter of a microsecond. (An outsider that holds it makes
-- publishers notify in vain, and no more: see _advisory_lock.) A worker that falls asleep between
-- this test and the commit misses the hint. To notify in case of it would be paid by every
-- publisher, so the sleeper covers it: see fall_asleep. When PostgreSQL's queue of notifications is
-- full, a transaction that notifies fails, and any session can fill it: so the function sends
-- nothing then. A transaction that notifies cannot be prepared for a two-phase commit: use `set
-- local headrace.notify = off` in such a transaction; sleeping workers then find its events by
-- their next poll. While a transaction that notifies meets another one, it says so ("crowd"):
-- sleepers may get up then, and poll by the clock until there is less to do.
create or replace function headrace._wake(queue int) returns void
language plpgsql
as $$
begin
    -- in one expression: no interrupt can come in between and leave the session with the lock
    if not (pg_try_advisory_lock(headrace._advisory_lock('sleepers'), queue)
            and pg_advisory_unlock(headrace._advisory_lock('sleepers'), queue))
       and current_setting('headrace.notify', true) is distinct from 'off'
       and pg_notification_queue_usage() < 0.9 then
        perform pg_notify('headrace_' || queue,
                          case when pg_try_advisory_xact_lock(headrace._advisory_lock('notifiers'), 0) then ''
                               else 'crowd' end);
    end if;
end $$;
