-- An event of a namespace's main as the document and clients know it. emittedAt is the sender's
-- time, as it was written, or else the database's.
create or replace function pgmq._envelope(
    namespace text, type text, payload jsonb, details jsonb, id bigint, attempts int, created_at timestamptz
) returns jsonb
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select jsonb_build_object(
               'namespace', namespace, 'eventType', type, 'payload', payload, 'emittedAt',
               coalesce(details ->> 'emitted_at', pgmq._iso(created_at)),
               'producerNodeId', case when details ? 'producer' then headrace._node_name(details ->> 'producer') end,
               'messageId', id, 'redeliveryCount', attempts)
        || case when details ? 'scheduled_task_id'
                then jsonb_build_object('scheduledTaskId', details -> 'scheduled_task_id') else '{}' end
$$;
