-- How old a count of a queue's depth may be: see _recent_depth.
create or replace function headrace._depth_is_good_for(q headrace.queues, depth bigint) returns interval
language sql immutable
as $$
    select least(interval '1 second', make_interval(secs => (
        greatest(coalesce(q.max_queue_depth, q.high_watermark) - depth, 0) + coalesce(q.max_queue_depth,
            q.high_watermark) * float8 '0.05') / 50000))
$$;
