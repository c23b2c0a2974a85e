-- Where the unfinished delivery of an event in a queue stands: one row of the view deliveries, found by keys.
create or replace function headrace.delivery(of_event bigint, in_queue int, route bigint, priority smallint)
returns table (event bigint, queue int, created_at timestamptz, attempts int, failures smallint, crashes smallint, suspect boolean,
               due_at timestamptz, lease bigint, "position" smallint, worker text, picked_at timestamptz, until timestamptz)
language sql stable rows 1
as $$
    select r.event, r.queue, r.created_at, r.attempts, r.failures, r.crashes, r.suspect, null::timestamptz, null::bigint,
           null::smallint, null::text, null::timestamptz, null::timestamptz
    from headrace.ready r
    where r.queue = in_queue and not r.suspect and r.priority = delivery.priority and r.route = delivery.route
      and r.seq between of_event >> 7 << 7 and of_event and (r.event = of_event or of_event = any (r.pack))
    union all
    select r.event, r.queue, r.created_at, r.attempts, r.failures, r.crashes, r.suspect, null, null, null, null, null, null
    from headrace.ready r
    where r.event = of_event and r.queue = in_queue and r.seq <> r.event and r.key is null
    union all
    select k.event, k.queue, k.created_at, k.attempts, k.failures, k.crashes, k.suspect, null, null, null, null, null, null
    from headrace.keyed k
    where k.event = of_event and k.queue = in_queue
    union all
    select d.* from headrace.deliveries d
    where d.event = of_event and d.queue = in_queue and coalesce(d.due_at, d.until) is not null
$$;
