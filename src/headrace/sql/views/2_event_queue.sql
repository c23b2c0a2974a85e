-- The live deliveries with their events: waiting and in progress. A bound role sees its namespaces
-- only, and PostgreSQL does not evaluate the role's own conditions on rows of other namespaces.
create or replace view headrace.event_queue with (security_barrier) as
select d.event as id, n.name as namespace, q.name as queue, e.type, e.tags, e.payload, e.details, e.priority,
       case when d.lease is null then 'PENDING' else 'PROCESSING' end as status,
       d.attempts, d.failures as retry_count, d.crashes,
       coalesce(e.max_retries, case when d.failures > 0 then (
                    select x.max_retries from headrace.errors x
                    where x.event = d.event and x.queue = d.queue order by x.outcome desc limit 1) end,
                q.max_retries) as max_retries,
       d.due_at as next_retry_at, d.worker as worker_id, d.picked_at as processing_started_at,
       d.until as lease_expires_at, e.created_at,
       coalesce(d.picked_at,
                case when d.attempts > 0 then (
                    select max(o.at) from headrace.outcomes o
                    where o.bucket = headrace.place(d.event) >> 10 and o.queue = d.queue
                      and d.event = any (o.events)) end,
                e.created_at) as updated_at
from headrace.deliveries d
join headrace.queues q on q.id = d.queue
join headrace.namespaces n on n.id = q.namespace
cross join lateral (
    select e.* from headrace.events e where e.id = d.event and e.created_at = d.created_at
    union all
    select c.* from headrace.events_carried c where c.id = d.event
    limit 1
) e
where (not n.bound or (select a.namespaces from headrace.admission a) is null
       or n.name = any ((select a.namespaces from headrace.admission a)::text[]));
