-- Every event that was emitted or recorded, as it was then: its metadata are what publish was told beside type and payload, with
-- its number as messageId and no redelivery; of one that append_event_log recorded, what that was told.
create or replace view core.event_log with (security_barrier) as
select e.id as event_id, n.name::text as namespace, e.type as event_type, e.payload, e.created_at as emitted_at,
       e.details ->> 'producer' as producer_node_id,
       (e.details ->> 'scheduled_task_id')::uuid as scheduled_task_id,
       case when e.version = 2147483647 then coalesce(e.details -> 'headers', '{}')
            else coalesce(e.details - '{producer,scheduled_task_id}'::text[], '{}')
                 || jsonb_build_object('messageId', e.id, 'redeliveryCount', 0) end as metadata
from headrace.events e join headrace.namespaces n on n.id = e.namespace
where n.name is not null and (not n.bound or (select a.namespaces from core.admission a) is null or n.name = any ((select a.namespaces from core.admission a)::text[]));
