-- Records an event without delivering it to any queue, today's or a later one's; returns its
-- number. An event that was published is in the log already: where the call is about one, it
-- returns that one's number and records nothing. It is about one when the metadata's messageId
-- names an event that was published into this namespace, or, without a messageId, when pgmq.send
-- sent the same type, payload and producer in the last five minutes and no call was about that one
-- yet. A messageId that names none is recorded with the rest. Other readers of events find the
-- metadata as the event's headers.
-- Concurrency: never waits. The entry exists when, and only when, the caller's transaction commits.
-- Raises QU001, QU002, QU003, QU010, as publish does.
create or replace function core.append_event_log(
    p_namespace text,
    p_event_type text,
    p_payload jsonb,
    p_producer_node_id text,
    p_scheduled_task_id uuid default null,
    p_metadata jsonb default null
) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    t timestamptz := headrace._now();
    -- An id drawn before the transaction has an xid could commit below a bound that was declared
    -- final.
    xid xid8 := pg_current_xact_id();
    producer constant text := headrace._node_name(p_producer_node_id);
    space headrace.namespaces;
    head headrace.head;
    id bigint;
begin
    select * into space from headrace.namespaces n
    where n.name = p_namespace and (not n.bound or headrace._has_access(n.name));
    if not found then
        perform headrace._raise_no_such_queue(p_namespace, 'main');
    elsif jsonb_typeof(p_metadata) <> 'object' then
        raise exception using errcode = 'QU001', message = 'the metadata of an event are a JSON object';
    elsif p_producer_node_id is not null and producer is null then
        raise exception using errcode = 'QU001',
            message = 'p_producer_node_id is the id of a node, with a letter or a digit in it (a-z, A-Z, 0-9)';
    end if;
    perform headrace._raise_problem(coalesce(headrace._payload_problem(p_payload),
                                             headrace._payload_problem(p_metadata)), 0);
    id := core._published(space.id, p_event_type, p_payload, producer, p_scheduled_task_id, p_metadata);
    if id is not null then
        return id;
    end if;
    head := (headrace._batch_headers(space, array[
        jsonb_strip_nulls(jsonb_build_object(
            'type', p_event_type, 'producer', producer, 'scheduled_task_id', p_scheduled_task_id))
        || case when p_metadata is null then '{}' else jsonb_build_object('headers', p_metadata) end], '{0}', t))[1];
    insert into headrace.events (id, created_at, route, namespace, version, priority, type, payload, details)
    values (nextval('headrace.ids'), t, head.route, space.id,
            2147483647,     -- later than every queue, so that none is filled with it
            head.priority, head.type, coalesce(p_payload, '{}'), head.details)
    returning events.id into id;
    if id <= space.floor then
        perform headrace._raise_ids_behind(id);
    end if;
    return id;
end $$;
