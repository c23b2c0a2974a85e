-- A queue as `queues` lists it.
create or replace function headrace.listed(q headrace.queues) returns headrace.listed_queue
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select q.name, q.state, q.takes, q.types, q.tags, q.all_tags,
           headrace.depth(q.id, greatest(10000, q.max_queue_depth, q.high_watermark)),
           (select case when c.last is null then 'waiting' else 'running' end from headrace.chores c where c.queue = q.id),
           q.max_retries, headrace.readable(q.backoff), q.max_queue_depth, q.high_watermark, q.batch_size, q.processing_interval, headrace.readable(q.metadata), q.created_at, q.persistence_threshold, q.require_lease_token, q."order",
           extract(epoch from q.lease)::float8
$$;
