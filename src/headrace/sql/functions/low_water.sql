-- How far a queue has come, and why no further. A checkpoint is a low-water mark: everything at or below it is finished, and no
-- transaction that is open can still commit anything below it. Who redrives an event from below takes it back.
-- checkpoint_id: the last event up to there that this queue had; null: none yet. event_count: how many it has processed in all.
-- lag: how many are unfinished, counted to 10,000; oldest_at: when the oldest of them was published.
-- reason: what it waits for, the oldest unfinished delivery or an open transaction; null: it is at the end.
-- Concurrency: waits for nobody for longer than a twentieth of a second. Raises QU010, QU011.
create or replace function headrace.low_water(
    namespace text, queue text default 'main',
    out checkpoint_id text, out event_count bigint, out lag bigint, out lag_is_exact boolean, out oldest_at timestamptz, out reason text
)
language plpgsql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    q constant headrace.queues := headrace.its_queue(low_water.namespace, low_water.queue);
    h constant headrace.horizon := headrace.look_ahead(false, true);
    low constant headrace.low_water := headrace.measure_low_water(q, h, null);
begin
    checkpoint_id := low.checkpoint;
    event_count := low.processed;
    lag := low.lag;
    lag_is_exact := low.lag_is_exact;
    oldest_at := low.oldest_at;
    reason := low.reason;
end $$;
