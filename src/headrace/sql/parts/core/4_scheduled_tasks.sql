-- The scheduled tasks. job_id: the job of pg_cron, where pg_cron runs the task.
create or replace view core.scheduled_tasks with (security_barrier) as
select s.task_id, n.name::text as namespace, s.job_id, s.name::text as name, s.cron_expression, s.event_type,
       s.payload, s.timezone, s.active, s.created_at, s.updated_at
from headrace.scheduled_tasks s join headrace.namespaces n on n.id = s.namespace
where (not n.bound or (select a.namespaces from core.admission a) is null
       or n.name = any ((select a.namespaces from core.admission a)::text[]));
