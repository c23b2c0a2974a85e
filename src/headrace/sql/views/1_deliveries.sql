-- Every unfinished delivery, in every place. One statement over the view sees each of them exactly
-- once.
create or replace view headrace.deliveries as
select r.event, r.queue, r.created_at, r.attempts, r.failures, r.crashes, r.suspect,
       null::timestamptz as due_at, null::bigint as lease, null::smallint as position,
       null::text as worker, null::timestamptz as picked_at, null::timestamptz as until
from headrace.ready r where r.pack is null and r.key is null
union all
select m.event, r.queue, r.created_at, r.attempts, r.failures, r.crashes, r.suspect, null, null, null, null, null, null
from headrace.ready r cross join lateral unnest(r.pack) as m(event) where r.pack is not null
union all
select k.event, k.queue, k.created_at, k.attempts, k.failures, k.crashes, k.suspect, null, null, null, null, null, null
from headrace.keyed k
union all
select d.event, d.queue, d.created_at, d.attempts, d.failures, d.crashes, d.suspect, d.due_at, null, null,
       null, null, null
from headrace.delayed d
union all
select h.event, h.queue, h.created_at, h.attempt, h.failures, h.crashes, h.suspect, null, l.id, h.position, l.worker,
       l.picked_at, l.until
from headrace.held h join headrace.leases l on l.id = h.lease
union all
select m.event, l.queue, m.created_at, coalesce(m.attempt, 1), coalesce(m.failures, 0::smallint), 0::smallint, false,
       null, l.id, (m.n - 1)::smallint, l.worker, l.picked_at, l.until
from headrace.leases l
cross join lateral unnest(l.events, l.created_at, l.attempts, l.failures) with ordinality as m(event, created_at,
    attempt, failures, n)
where l.events is not null and (l.done is null or get_bit(l.done, m.n::int - 1) = 0);
