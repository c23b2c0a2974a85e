-- Marks this session as asleep until a queue has work: once this has committed, sessions that add
-- work notify the returned channel, to which the session listens now. So: fall asleep, poll once
-- more, wait, for a poll interval at most, and wake_up. A transaction that added work before, and
-- commits later, notifies nobody: so poll as well when the sleep is 5, 50 and 500 ms old. Such work
-- then waits ten times as long as its transaction took to commit, at most, and never longer than
-- until the next poll. Null: workers cannot be woken at the moment, because an outsider holds the
-- sleepers' lock (locks_in_the_way names it): poll, and try again after a poll interval. The state
-- belongs to the session, as LISTEN does: not behind a transaction pooler. Call it once for each
-- wake_up; a session that ends is awake. Call it in a transaction of its own: if that were rolled
-- back, the session would not listen, and publishers would notify it all the same.
-- Concurrency: see _wake. Waits some milliseconds at most: a publisher that tests the lock holds it
-- for a microsecond.
-- Raises QU010, QU011.
create or replace function headrace.fall_asleep(namespace text, queue text default 'main') returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    q headrace.queues := headrace._queue_named(fall_asleep.namespace, fall_asleep.queue);
begin
    for attempt in 1..10 loop
        if pg_try_advisory_lock_shared(headrace._advisory_lock('sleepers'), q.id) then
            -- LISTEN takes no expression; this name is made of a number of ours
            execute format('listen %I', 'headrace_' || q.id);
            return 'headrace_' || q.id;
        end if;
        perform pg_sleep(0.001);
    end loop;
    return null;
end $$;
