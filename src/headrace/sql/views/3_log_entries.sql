-- All actions of the log, one action per row; an entry's number is (id of its row) * 1024 +
-- (position in it) and never changes, although a PICKED is read from the lease while it lives and
-- from the outcome after. `source` is the id from which its number is made, `noted` the id of the
-- event or outcome it is read from, never lower, and the maximum for a live claim: keys for reading
-- a part. stored_at: the month it is read from.
create or replace view headrace.log_entries as
select e.id << 10 as id, headrace.place(e.id) >> 10 as bucket, e.id as event_id, e.namespace, null::int as queue,
       'EMITTED' as action, e.details ->> 'producer' as worker_id, null::int as attempt, null::int as status_code,
       null::text as error_message,
       null::int as execution_time_ms, e.created_at, e.id as source, e.id as noted, e.created_at as stored_at
from headrace.events e
union all
select (d.lease << 10) + d.position, headrace.place(d.event) >> 10, d.event, q.namespace, d.queue, 'PICKED', d.worker,
       d.attempts, null, null, null, d.picked_at, d.lease, 9223372036854775807, 'infinity'
from headrace.deliveries d join headrace.queues q on q.id = d.queue
where d.lease is not null
union all
select (o.lease << 10) + coalesce(m.position, o.positions[1] + m.n - 1), o.bucket, m.event, o.namespace, o.queue,
       'PICKED', o.worker, m.attempt, null, null, null, o.picked_at, o.lease, o.id, o.at
from headrace.outcomes o
cross join lateral unnest(o.events, o.attempts, o.positions) with ordinality as m(event, attempt, position, n)
where o.picked_at is not null and o.lease is not null    -- a late finish has none: see _take_late
union all
select (o.id << 10) + m.n - 1, o.bucket, m.event, o.namespace, o.queue, o.action, coalesce(o.actor, o.worker),
       m.attempt, m.code, coalesce(o.reason, (select nullif(x.error, '') from headrace.errors x
                           where x.event = m.event and x.queue = o.queue and x.outcome = o.id and x.at = o.at)),
       m.ms, o.at, o.id, o.id, o.at
from headrace.outcomes o
cross join lateral unnest(o.events, o.attempts, o.codes, o.ms) with ordinality as m(event, attempt, code, ms, n);
