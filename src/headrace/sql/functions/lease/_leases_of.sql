-- The leases of batches that hold the given attempts, as an array along `events`; null where none
-- does, where the item was taken already, or where it named a lease itself. Reads every live batch
-- of the queue: for callers that have only the event and the attempt.
create or replace function headrace._leases_of(
    q headrace.queues, taken headrace.taken[], events bigint[], attempts int[], leases bigint[]
) returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select array_agg(
        (select l.id from headrace.leases l
         where l.queue = q.id and l.events is not null
           and i.event = any (l.events) and coalesce(l.attempts[array_position(l.events, i.event)], 1) = i.attempt
           and i.lease is null and i.item not in (select k.item from unnest(taken) k)
         limit 1) order by i.item)
    from unnest(events, attempts, leases) with ordinality as i(event, attempt, lease, item)
$$;
