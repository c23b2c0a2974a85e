-- Takes held deliveries: deletes their rows, if they are still held under the attempt that was named. Touches
-- nothing else, so it waits for no heartbeat and no sibling; for a racing end of the same delivery it does.
create function headrace.take_held(q headrace.queues, events bigint[], attempts int[]) returns headrace.taken[]
language sql volatile
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
    with mine as (
        delete from headrace.held h
        using (select * from unnest(events, attempts) with ordinality as i(event, attempt, item) order by i.event) i
        where h.event = i.event and h.queue = q.id and h.attempt = i.attempt
        returning i.item, h.*
    )
    select coalesce(array_agg(row(m.item, m.event, m.attempt, m.created_at, m.failures, m.crashes, m.suspect, m.lease,
                                  m.position, l.size, l.picked_at, l.worker)::headrace.taken order by m.item), '{}')
    from mine m left join headrace.leases l on l.id = m.lease
$$;
