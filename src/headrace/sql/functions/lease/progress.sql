-- The progress that earlier attempts, or this one, have saved for deliveries of a queue; no row for
-- a delivery without any. On its first attempt a delivery has none. A progress that some JSON
-- readers could not read, because it was written without save_progress, counts as none. Raises
-- QU010, QU011.
create or replace function headrace.progress(namespace text, events bigint[], queue text default 'main')
returns table (event bigint, attempt int, progress jsonb, saved_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    q headrace.queues := headrace._queue_named(progress.namespace, progress.queue);
begin
    return query
    select p.event, p.attempt, p.value, p.saved_at
    from headrace.progress p
    where p.queue = q.id and p.event = any (progress.events) and headrace._json_problem(p.value) is null
    order by p.event;
end $$;
