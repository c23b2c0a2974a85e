-- The event of a message to a namespace's main, as publish takes it. A messageId and a
-- redeliveryCount are accepted, because a dead letter's originalEvent has them, and are replaced.
-- Raises QU001 for an envelope with more fields than an event can store, or that belongs elsewhere.
create or replace function pgmq._event(namespace text, msg jsonb) returns jsonb
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
declare
    known constant text[] :=
        '{namespace,eventType,payload,emittedAt,producerNodeId,messageId,scheduledTaskId,redeliveryCount}';
    producer constant text := headrace._node_name(msg ->> 'producerNodeId');
begin
    if jsonb_typeof(msg -> 'eventType') is distinct from 'string' then
        return jsonb_build_object('payload', coalesce(msg, 'null'));
    elsif msg - known <> '{}' then
        raise exception using errcode = 'QU001',
            message = 'a message with an eventType is an envelope, and has no field '
            || (select k::text from jsonb_object_keys(msg - known) k order by k limit 1);
    elsif msg ->> 'namespace' <> _event.namespace then
        raise exception using errcode = 'QU001', message = format('an envelope of the namespace %L is not sent to %L',
                                                                  msg ->> 'namespace', _event.namespace);
    elsif jsonb_typeof(msg -> 'producerNodeId') not in ('string', 'null') or msg ->> 'producerNodeId' is not null
        and producer is null then
        raise exception using errcode = 'QU001',
            message = 'the producerNodeId of an envelope is the id of a node, with a letter or a digit in it (a-z, '
                      'A-Z, 0-9)';
    elsif jsonb_typeof(msg -> 'scheduledTaskId') not in ('string', 'null') then
        raise exception using errcode = 'QU001', message = 'the scheduledTaskId of an envelope is a string';
    end if;
    perform pgmq._check_time('emittedAt', msg -> 'emittedAt');
    return jsonb_build_object('type', msg -> 'eventType', 'payload', coalesce(msg -> 'payload', 'null'))
        || jsonb_strip_nulls(jsonb_build_object(
               'producer', producer, 'scheduled_task_id', msg -> 'scheduledTaskId', 'emitted_at', msg -> 'emittedAt'));
end $$;
