-- The event that a message to a namespace's main says, as publish takes it. Raises QU001 for an envelope that says more than an
-- event can keep, or that belongs elsewhere.
create or replace function pgmq._event(namespace text, msg jsonb) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    known constant text[] := '{namespace,eventType,payload,emittedAt,producerNodeId,messageId,scheduledTaskId,redeliveryCount}';
begin
    if jsonb_typeof(msg -> 'eventType') is distinct from 'string' then
        return jsonb_build_object('payload', coalesce(msg, 'null'));
    elsif msg - known <> '{}' then
        raise exception using errcode = 'QU001', message = 'a message with an eventType is an envelope, and has no field '
            || (select k::text from jsonb_object_keys(msg - known) k order by k limit 1);
    elsif msg ->> 'namespace' <> _event.namespace then
        raise exception using errcode = 'QU001', message = format('an envelope of the namespace %L is not sent to %L', msg ->> 'namespace', _event.namespace);
    end if;
    return jsonb_build_object('type', msg -> 'eventType', 'payload', coalesce(msg -> 'payload', 'null'))
        || case when jsonb_typeof(msg -> 'producerNodeId') = 'string' then jsonb_build_object('producer', msg -> 'producerNodeId') else '{}' end
        || case when jsonb_typeof(msg -> 'scheduledTaskId') = 'string' then jsonb_build_object('scheduled_task_id', msg -> 'scheduledTaskId') else '{}' end;
end $$;
