-- This session sleeps until a queue has work: from when this has committed, whoever brings some notifies the channel that is
-- returned, to which the session listens now. So: fall asleep, poll once more, wait, for an interval at most, and wake_up.
-- Null: nobody can be woken at the moment, because an outsider has the sleepers' lock (locks_in_the_way tells who): poll, and try
-- again after an interval.
-- Belongs to the session, as LISTEN does: not behind a transaction pooler. Once for each wake_up; a session that ends is awake.
-- Call it alone: were its transaction rolled back, the session would not listen, and publishers would notify it all the same.
-- Concurrency: see wake. Waits for nobody, but for some milliseconds: a publisher that looks has the lock for a microsecond.
-- Raises QU010, QU011.
create or replace function headrace.fall_asleep(namespace text, queue text default 'main') returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    q headrace.queues := headrace.its_queue(fall_asleep.namespace, fall_asleep.queue);
begin
    for attempt in 1..10 loop
        if pg_try_advisory_lock_shared(headrace.advisory_lock('sleepers'), q.id) then
            -- LISTEN takes no expression; this one is made of a number of ours
            execute format('listen %I', 'headrace_' || q.id);
            return 'headrace_' || q.id;
        end if;
        perform pg_sleep(0.001);
    end loop;
    return null;
end $$;
