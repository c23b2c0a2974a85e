-- The leases of batches that hold the given attempts, as an array along `events`; null where none does, or where
-- the item was taken already. Reads every live batch of the queue: for callers who have only the event and the attempt.
create or replace function headrace.locate(q headrace.queues, taken headrace.taken[], events bigint[], attempts int[]) returns bigint[]
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select array_agg(
        (select l.id from headrace.leases l
         where l.queue = q.id and l.events is not null
           and l.attempts[array_position(l.events, i.event)] = i.attempt
           and i.item not in (select k.item from unnest(taken) k)
         limit 1) order by i.item)
    from unnest(events, attempts) with ordinality as i(event, attempt, item)
$$;
