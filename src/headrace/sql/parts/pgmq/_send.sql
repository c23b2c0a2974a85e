-- Publishes messages. To a queue of pgmq's: events of its type. To a namespace's main: a message
-- with an eventType is an envelope and becomes the event that it describes; any other is the
-- payload of an event without a type. To dead letters: see _bury. The function stores messages to a
-- namespace for core.append_event_log, where that is installed: see headrace.sent.
create or replace function pgmq._send(
    queue_name text, msgs jsonb[], headers jsonb[], at timestamptz
) returns setof bigint
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    place record := pgmq._queue(_send.queue_name);
    more constant jsonb := case when _send.at > headrace._now()
                                then jsonb_build_object('at', to_jsonb(_send.at at time zone 'UTC') #>> '{}' || 'Z')
                                    else '{}' end;
    events jsonb;
    sent record;
begin
    if coalesce(cardinality(msgs), 0) = 0 then
        raise exception using errcode = 'QU001', message = 'msgs are one or more messages';
    elsif cardinality(headers) <> cardinality(msgs) then
        raise exception using errcode = 'QU001', message = 'headers are as many as msgs';
    elsif place.kind = 'dead' then
        return query select pgmq._bury(place.q, m) from unnest(msgs) m;
        return;
    elsif place.kind = 'own' and coalesce(array_remove(headers, null), '{}') = '{}' then
        events := jsonb_build_object('type', (place.q).name, 'payloads', to_jsonb(msgs)) || more;
    else
        select jsonb_agg(
            case when place.kind = 'own' then jsonb_build_object('type', (place.q).name, 'payload', m.msg)
                 else pgmq._event((place.q).space, m.msg) end
            || case when m.header is not null then jsonb_build_object('headers', m.header) else '{}' end
            || more order by m.n)
        into events from unnest(msgs, headers) with ordinality as m(msg, header, n);
    end if;
    select p.ids, p.created_at into sent from headrace.publish((place.q).space, events) p;
    return query select unnest(sent.ids);
    if place.kind = 'main' and exists (select from headrace.optional o where o.name = 'core') then
        insert into headrace.sent (namespace, digest, event, at)
        select (place.q).namespace, headrace._content_digest(e.event ->> 'type', e.event -> 'payload',
                                                             e.event ->> 'producer'),
               sent.ids[e.n], sent.created_at
        from jsonb_array_elements(events) with ordinality as e(event, n);
        if random() < 0.01 then
            perform headrace._forget_sent(headrace._now(), 10000);
        end if;
    end if;
    if random() < 0.01 then
        perform pgmq._keep_up();
    end if;
end $$;
