-- The number of the published event that a call of append_event_log is about; null: none.
-- Raises QU001 for a messageId that names another event, and for metadata or a scheduled task that
-- a published event, which can no longer change, cannot take.
create or replace function core._published(
    namespace int, event_type text, payload jsonb, producer text, task uuid, metadata jsonb
) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    named constant bigint := case when metadata ->> 'messageId' ~ E'^\\d{1,18}$'
                                  then (metadata ->> 'messageId')::bigint end;
    wanted constant bigint := headrace._content_digest(event_type, payload, producer);
    found_event bigint;
    is_meant boolean;
begin
    if named is not null then
        select e.id, headrace._content_digest(e.type, e.payload, headrace._node_name(e.details ->> 'producer')) = wanted
        into found_event, is_meant from headrace.events e
        where e.id = named and e.namespace = namespace and e.version <> 2147483647;
        if not is_meant then
            raise exception using errcode = 'QU001', message = format(
                'the messageId %s names an event of another type, payload or producer: give the type, payload and '
                'producer that were sent, or leave messageId out', named);
        end if;
        delete from headrace.sent s where s.namespace = namespace and s.digest = wanted and s.event = found_event;
    elsif not metadata ? 'messageId' or metadata is null then
        delete from headrace.sent s where s.ctid = (
            select o.ctid from headrace.sent o
            where o.namespace = namespace and o.digest = wanted and o.at > headrace._now() - interval '5 minutes'
            order by o.event limit 1 for update skip locked)
        returning s.event into found_event;
    end if;
    if found_event is not null and metadata - '{messageId,redeliveryCount}'::text[] <> '{}' then
        raise exception using errcode = 'QU001', message = format(
            'the event %s is in the log already, and takes no more metadata: give them to pgmq.send as its headers',
            found_event);
    elsif found_event is not null and task is not null and not exists (
        select from headrace.events e
        where e.id = found_event
          and replace(lower(e.details ->> 'scheduled_task_id'), '-', '') = replace(task::text, '-', '')
    ) then
        raise exception using errcode = 'QU001', message = format(
            'the event %s is in the log already, without this scheduled task: give its id to pgmq.send as the '
            'scheduledTaskId of the envelope', found_event);
    end if;
    return found_event;
end $$;
