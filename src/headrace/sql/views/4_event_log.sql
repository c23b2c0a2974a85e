-- The log for people to read. For the trail of one event the function headrace.event_log is fast,
-- this view is slow.
create or replace view headrace.event_log with (security_barrier) as
select l.id, l.event_id, n.name as namespace, q.name as queue, l.action, l.worker_id, l.attempt, l.status_code,
       l.error_message, l.execution_time_ms, l.created_at, l.due_at, l.superseded_by
from headrace.log_entries l
join headrace.namespaces n on n.id = l.namespace
left join headrace.queues q on q.id = l.queue
where (not n.bound or (select a.namespaces from headrace.admission a) is null
       or n.name = any ((select a.namespaces from headrace.admission a)::text[]));
