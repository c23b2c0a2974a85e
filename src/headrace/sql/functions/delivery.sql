-- Where the unfinished delivery of an event in a queue stands: one row of the view deliveries, found by keys.
create or replace function headrace.delivery(event bigint, queue int, route bigint, priority smallint) returns setof headrace.deliveries
language sql stable rows 1
as $$
    select r.event, r.queue, r.created_at, r.attempts, r.failures, r.crashes, r.suspect, null::timestamptz, null::bigint,
           null::smallint, null::text, null::timestamptz, null::timestamptz
    from headrace.ready r
    where r.queue = delivery.queue and not r.suspect and r.priority = delivery.priority and r.route = delivery.route
      and r.seq = delivery.event and r.event = delivery.event
    union all
    select r.event, r.queue, r.created_at, r.attempts, r.failures, r.crashes, r.suspect, null, null, null, null, null, null
    from headrace.ready r
    where r.event = delivery.event and r.queue = delivery.queue and r.seq <> r.event
    union all
    select d.* from headrace.deliveries d
    where d.event = delivery.event and d.queue = delivery.queue and coalesce(d.due_at, d.until) is not null
$$;
