-- The place of the unfinished delivery of an event in a queue: one row of the view deliveries,
-- found by keys.
create or replace function headrace._unfinished_delivery(of_event bigint, in_queue int, route bigint, priority smallint)
returns table (event bigint, queue int, created_at timestamptz, attempts int, failures smallint, crashes smallint,
               suspect boolean,
               due_at timestamptz, lease bigint, "position" smallint, worker text, picked_at timestamptz,
               until timestamptz)
language sql stable rows 1
as $$
    select w.*, null::bigint, null::smallint, null::text, null::timestamptz, null::timestamptz
    from headrace._waiting_delivery(of_event, in_queue, route, priority) w
    union all
    select d.* from headrace.deliveries d
    where d.event = of_event and d.queue = in_queue and d.until is not null
$$;
