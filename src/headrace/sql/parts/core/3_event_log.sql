-- Every event that was emitted or recorded, as it was then. emitted_at is the database's time.
-- metadata has the fields that publish got beside type and payload, with the event's number as
-- messageId and no redelivery; emittedAt is the sender's time, where it gave one. For an event that
-- append_event_log recorded, metadata is the metadata of that call. A scheduled task's id that is
-- not a UUID is in metadata. The producer is normalised, as the ids in core.nodes are; its original
-- name is in metadata.
create or replace view core.event_log with (security_barrier) as
select e.id as event_id, n.name::text as namespace, e.type as event_type, e.payload, e.created_at as emitted_at,
       t.producer as producer_node_id,
       case when t.is_uuid then (e.details ->> 'scheduled_task_id')::uuid end as scheduled_task_id,
       case when e.version = 2147483647 then coalesce(e.details -> 'headers', '{}')
            else coalesce(e.details - '{producer,scheduled_task_id,emitted_at}'::text[], '{}')
                 || case when e.details ? 'emitted_at' then jsonb_build_object('emittedAt', e.details -> 'emitted_at')
                         else '{}' end
                 || case when e.details ->> 'producer' is distinct from t.producer
                         then jsonb_build_object('producer', e.details -> 'producer') else '{}' end
                 || case when not t.is_uuid then jsonb_build_object('scheduledTaskId', e.details -> 'scheduled_task_id')
                         else '{}' end
                 || jsonb_build_object('messageId', e.id, 'redeliveryCount', 0) end as metadata
from headrace.events e join headrace.namespaces n on n.id = e.namespace
cross join lateral (
    select e.details ->> 'scheduled_task_id' ~ '^[0-9A-Fa-f]{8}-?([0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}$' as is_uuid,
           -- as headrace._node_name normalises it
           substring(btrim(left(btrim(regexp_replace((e.details ->> 'producer') collate "C", '[^A-Za-z0-9._:]+', '-',
                                                     'g'), '-'), 100), '-')
                     from '.*[A-Za-z0-9].*') collate "default" as producer
) t
where n.name is not null and (not n.bound or (select a.namespaces from core.admission a) is null
                              or n.name = any ((select a.namespaces from core.admission a)::text[]));
