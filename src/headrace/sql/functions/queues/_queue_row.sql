-- A queue as `queues` lists it.
create or replace function headrace._queue_row(q headrace.queues) returns headrace.listed_queue
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select q.name, q.state, q.takes, q.types, q.tags, q.all_tags,
           headrace._depth(q.id, greatest(10000, q.max_queue_depth, q.high_watermark)),
           (select case when c.last is null then 'waiting' else 'running' end from headrace.chores c
            where c.queue = q.id),
           q.max_retries, headrace._readable_json(q.backoff), q.max_queue_depth, q.high_watermark, q.batch_size,
           q.processing_interval, headrace._readable_json(q.metadata), q.created_at, q.persistence_threshold,
           q.require_lease_token, q."order", extract(epoch from q.lease)::float8,
           q.limits, q.fair_by, extract(epoch from q.aging)::float8, q.max_snoozes
$$;
