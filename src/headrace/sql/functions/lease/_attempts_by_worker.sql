-- The attempts of callers that know an event and their own name, along `events`: where attempts has
-- none, the claim that the worker holds now, else the last one it held; null where it never had
-- one. A name proves nothing: the finish checks whether the attempt is still the current one.
create or replace function headrace._attempts_by_worker(
    q headrace.queues, events bigint[], attempts int[], workers text[]
) returns int[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_variable
declare
    since constant timestamptz := headrace._earliest_time_of(events);
begin
    return (select array_agg(coalesce(
        i.attempt,
        (select h.attempt from headrace.held h join headrace.leases l on l.id = h.lease
         where h.queue = q.id and h.event = i.event and l.worker = i.worker),
        (select coalesce(l.attempts[array_position(l.events, i.event)], 1) from headrace.leases l
         where l.queue = q.id and l.events is not null and l.worker = i.worker and i.event = any (l.events)
           and coalesce(get_bit(l.done, array_position(l.events, i.event) - 1), 0) = 0
         limit 1),
        (select max(o.attempts[array_position(o.events, i.event)]) from headrace.outcomes o
         where o.bucket = headrace._bucket(i.event) and o.queue = q.id and o.picked_at is not null
           and o.worker = i.worker and (since = '-infinity' or o.at >= since)
           and i.event = any (o.events))
    ) order by i.item)
    from unnest(events, attempts, workers) with ordinality as i(event, attempt, worker, item));
end $$;
