-- This session sleeps until a queue has work: from when this has committed, whoever brings some notifies the channel that is
-- returned, to which the session listens now. So: fall asleep, poll once more, wait, for an interval at most, and wake_up.
-- Belongs to the session, as LISTEN does: not behind a transaction pooler. Once for each wake_up; a session that ends is awake.
-- Call it alone: were its transaction rolled back, the session would not listen, and publishers would notify it all the same.
-- Concurrency: see wake. Raises QU010, QU011.
create or replace function headrace.fall_asleep(namespace text, queue text default 'main') returns text
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    q headrace.queues := headrace.its_queue(fall_asleep.namespace, fall_asleep.queue);
begin
    -- LISTEN takes no expression; this one is made of a number of ours
    execute format('listen %I', 'headrace_' || q.id);
    perform pg_advisory_lock_shared(1212433732, q.id);
    return 'headrace_' || q.id;
end $$;
