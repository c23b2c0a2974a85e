-- The low-water mark of a queue, and the reason why it is not further. A checkpoint is a low-water
-- mark: everything at or below it is finished, and no transaction that is open can still commit
-- anything below it. Redriving an event from below moves it back.
-- checkpoint_id: the last event of this queue up to there; null: none yet. event_count: the number
-- of events that it has processed in all.
-- lag: the number of unfinished events, counted to 10,000; oldest_at: when the oldest of them was
-- published.
-- reason: the oldest unfinished delivery or the open transaction that holds the checkpoint back;
-- null: it is at the end.
-- Concurrency: never waits longer than a twentieth of a second. Raises QU010, QU011.
create or replace function headrace.low_water(
    namespace text, queue text default 'main',
    out checkpoint_id text, out event_count bigint, out lag bigint, out lag_is_exact boolean, out oldest_at timestamptz,
    out reason text
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    q constant headrace.queues := headrace._queue_named(low_water.namespace, low_water.queue);
    h constant headrace.horizon := headrace._horizon(false, true);
    low constant headrace.low_water := headrace._measure_low_water(q, h, null);
begin
    checkpoint_id := low.checkpoint;
    event_count := low.processed;
    lag := low.lag;
    lag_is_exact := low.lag_is_exact;
    oldest_at := low.oldest_at;
    reason := low.reason;
end $$;
