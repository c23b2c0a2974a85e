-- The place in which the delivery of an event in a queue waits, if it does: a row of the view
-- deliveries without those that are claimed, found by keys.
create or replace function headrace._waiting_delivery(of_event bigint, in_queue int, route bigint, priority smallint)
returns table (event bigint, queue int, created_at timestamptz, attempts int, failures smallint, crashes smallint,
               suspect boolean, due_at timestamptz)
language sql stable rows 1
as $$
    select of_event, r.queue, r.created_at, r.attempts, r.failures, r.crashes, r.suspect, null::timestamptz
    from headrace.ready r
    where r.queue = in_queue and not r.suspect and r.priority = _waiting_delivery.priority
      and r.route = _waiting_delivery.route
      and r.seq between headrace._first_of_pack(of_event) and of_event
      and (r.event = of_event or of_event = any (r.pack))
    union all
    select r.event, r.queue, r.created_at, r.attempts, r.failures, r.crashes, r.suspect, null
    from headrace.ready r
    where r.event = of_event and r.queue = in_queue and r.seq <> r.event and r.key is null
    union all
    select k.event, k.queue, k.created_at, k.attempts, k.failures, k.crashes, k.suspect, null
    from headrace.keyed k
    where k.event = of_event and k.queue = in_queue
    union all
    select d.event, d.queue, d.created_at, d.attempts, d.failures, d.crashes, d.suspect, d.due_at
    from headrace.delayed d
    where d.event = of_event and d.queue = in_queue
$$;
