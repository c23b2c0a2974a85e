-- The settings of a queue as the state document has them.
create or replace function headrace._state_config(q headrace.queues) returns json
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select json_build_object('maxQueueDepth', q.max_queue_depth, 'batchSize', q.batch_size, 'processingInterval',
                             q.processing_interval,
                             'persistenceThreshold', q.persistence_threshold, 'highWatermark', q.high_watermark)
$$;
