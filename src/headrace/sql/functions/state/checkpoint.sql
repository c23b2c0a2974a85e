-- Saves the state of a queue and a checkpoint of it: an entry of queue_checkpoints. low_water
-- explains its columns.
-- Concurrency: a second call waits for the first. Raises QU010, QU011, and QU030 outside READ
-- COMMITTED.
create or replace function headrace.checkpoint(
    namespace text, queue text default 'main',
    out id uuid, out queue_id text, out checkpoint_id text, out event_count bigint, out created_at timestamptz,
    out lag bigint, out lag_is_exact boolean, out oldest_at timestamptz, out reason text
)
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t constant timestamptz := headrace._now();
    q constant headrace.queues := headrace._queue_named(checkpoint.namespace, checkpoint.queue);
    low headrace.low_water;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception using errcode = 'QU030',
            message = 'checkpoint needs READ COMMITTED: it tells what others have just committed';
    end if;
    perform headrace._lock('state ' || q.id);
    low := headrace._store_state(q, t, headrace._horizon(true, true), true);
    select c.id, c.queue_id, c.checkpoint_id, c.event_count, c.created_at
    into checkpoint.id, checkpoint.queue_id, checkpoint.checkpoint_id, checkpoint.event_count, checkpoint.created_at
    from headrace.queue_checkpoints c where c.queue_id = q.space || '/' || q.name
    order by c.created_at desc limit 1;
    lag := low.lag;
    lag_is_exact := low.lag_is_exact;
    oldest_at := low.oldest_at;
    reason := low.reason;
end $$;
