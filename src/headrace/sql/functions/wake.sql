-- Tells the sleeping workers of a queue that there may be work. Only a hint: polling alone is correct.
-- NOTIFY takes a database-wide lock at commit, so it is sent only when somebody sleeps: a sleeper holds the
-- queue's advisory lock shared, and a try-lock tells in a quarter of a microsecond. (An outsider who has it makes publishers notify in
-- vain, and no more: see advisory_lock.) A worker that falls asleep
-- between this test and the commit would miss it, so a transaction that is already old notifies anyway.
-- When PostgreSQL's queue of notifications is full, a transaction that notifies fails, and anybody can fill it: so nobody is told then.
-- A transaction that notifies cannot be prepared for a commit in two phases: `set local headrace.notify = off` in those that
-- will be; sleepers then find what they bring by their next poll.
create or replace function headrace.wake(queue int) returns void
language plpgsql
as $$
begin
    -- in one expression: nothing that interrupts a session comes in between and leaves it with the lock
    if (clock_timestamp() - transaction_timestamp() >= interval '5 ms'
        or not (pg_try_advisory_lock(headrace.advisory_lock('sleepers'), queue)
                and pg_advisory_unlock(headrace.advisory_lock('sleepers'), queue)))
       and current_setting('headrace.notify', true) is distinct from 'off'
       and pg_notification_queue_usage() < 0.9 then
        perform pg_notify('headrace_' || queue, '');
    end if;
end $$;
