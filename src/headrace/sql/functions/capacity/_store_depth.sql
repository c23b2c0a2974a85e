-- Counts the deliveries that wait in a queue, no further than its limits, and stores the number:
-- see _recent_depth.
create or replace function headrace._store_depth(q headrace.queues, t timestamptz) returns bigint
language sql
set search_path = pg_catalog, pg_temp
as $$
    insert into headrace.depths (queue, at, depth)
    values (q.id, t, headrace._depth(q.id, greatest(q.max_queue_depth, q.high_watermark)))
    returning depth
$$;
