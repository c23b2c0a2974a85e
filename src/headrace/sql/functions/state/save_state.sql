-- Saves the state of a queue now, in event_queue_state. tick saves it from time to time, see
-- _save_states, and so does a node when it stops.
-- Concurrency: a second call waits for the first. Raises QU010, QU011, and QU030 outside READ
-- COMMITTED.
create or replace function headrace.save_state(namespace text, queue text default 'main') returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    q constant headrace.queues := headrace._queue_named(save_state.namespace, save_state.queue);
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'save_state needs READ COMMITTED: it tells what others have just committed';
    end if;
    perform headrace._lock('state ' || q.id);
    perform headrace._store_state(q, headrace._now(), headrace._horizon(true, true), false);
end $$;
