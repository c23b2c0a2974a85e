-- The unfinished delivery of a queue that has the lowest event, and its place; no row if there is
-- none. Stable, so that all places are read in one snapshot: a delivery that moves between places
-- is seen.
-- Cost: grows with the waiting pairs of priority and route, and the claims; with more than 1,000
-- pairs every waiting delivery is read.
create or replace function headrace._oldest_unfinished(queue int)
returns table (event bigint, place text, created_at timestamptz, attempts int, due_at timestamptz, worker text,
               picked_at timestamptz)
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    is_wide constant boolean := (select count(*) from headrace._ready_routes(_oldest_unfinished.queue, 1001)) > 1000;
begin
    return query
    select u.* from (
        -- A fresh delivery has its event's number as seq, so the first of a pair is its lowest;
        -- except for deliveries that came back.
        (select r.event, 'ready', r.created_at, r.attempts, null::timestamptz, null::text, null::timestamptz
         from headrace._ready_routes(_oldest_unfinished.queue, 1000) p
         cross join lateral (
             select r.* from headrace.ready r
             where r.queue = _oldest_unfinished.queue and r.suspect = p.suspect and r.priority = p.priority
               and r.route = p.route
               and r.key is null
             order by r.seq limit 1
         ) r
         where not is_wide
         order by r.event limit 1)
        union all
        (select r.event, 'ready', r.created_at, r.attempts, null, null, null
         from headrace.ready r where r.queue = _oldest_unfinished.queue and r.seq <> r.event and r.key is null
         order by r.event limit 1)
        union all
        (select r.event, 'ready', r.created_at, r.attempts, null, null, null
         from headrace.ready r where is_wide and r.queue = _oldest_unfinished.queue and r.key is null
         order by r.event limit 1)
        union all
        (select k.event, 'keyed', k.created_at, k.attempts, null, null, null
         from headrace.keyed k where k.queue = _oldest_unfinished.queue order by k.event limit 1)
        union all
        (select d.event, 'delayed', d.created_at, d.attempts, d.due_at, null, null
         from headrace.delayed d where d.queue = _oldest_unfinished.queue order by d.event limit 1)
        union all
        (select h.event, 'held', h.created_at, h.attempt, null, l.worker, l.picked_at
         from headrace.held h join headrace.leases l on l.id = h.lease
         where h.queue = _oldest_unfinished.queue order by h.event limit 1)
        union all
        (select m.event, 'held', m.created_at, coalesce(m.attempt, 1), null, l.worker, l.picked_at
         from headrace.leases l
         cross join lateral unnest(l.events, l.created_at, l.attempts) with ordinality as m(event,
             created_at, attempt, n)
         where l.queue = _oldest_unfinished.queue and l.events is not null
           and (l.done is null or get_bit(l.done, m.n::int - 1) = 0)
         order by m.event limit 1)
    ) as u(event, place, created_at, attempts, due_at, worker, picked_at)
    order by u.event limit 1;
end $$;
