-- Draws the ids of a batch with idempotency or unique keys, and stores the former: the first event with a key
-- is stored, later events with it get the id of the first if they have the same type, payload, tags
-- and ordering key. The name of a codec stands for the payload: encryption gives another text each
-- time.
-- Concurrency: waits for an open transaction that has one of the keys; keys are taken in their
-- order, so that two batches do not wait for each other. Raises QU022; above READ COMMITTED also
-- 40001, for a key that is too new to see.
create or replace function headrace._take_idempotency_keys(
    space headrace.namespaces, heads headrace.head[], payloads jsonb[], which int[], t timestamptz,
    out ids bigint[], out repeated int[], out created_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    kept timestamptz := headrace._retained_since('idempotency_retention', t);
    digests bytea[];
    keys text[];
    one record;
begin
    select array_agg(h.idempotency_key order by u.place), array_agg(
               case when h.idempotency_key is not null then
                   sha256(convert_to(jsonb_build_array(
                       h.type, h.sorted, h.key,
                       coalesce(h.details -> 'headers' -> 'headrace-codec', u.payload, '{}'))::text, 'UTF8')) end
               order by u.place)
    into keys, digests
    from unnest(payloads, which) with ordinality as u(payload, head, place)
    join unnest(heads) h on h.n = u.head;

    with outdated as materialized (
        select i.ctid from headrace.idempotency i
        where i.namespace = space.id and i.key = any (keys) and i.created_at < kept
          -- evaluated only for a key that seems to have expired
          and i.created_at < (select headrace._retained_since('idempotency_retention', headrace._retention_clock()))
        order by i.key
        for update
    )
    delete from headrace.idempotency i where i.ctid = any (array(select o.ctid from outdated o));
    -- drawn now that a table of ours is locked: readers of the log as a stream wait for the
    -- transactions that hold such a lock
    ids := array(select nextval('headrace.ids') from unnest(keys));
    insert into headrace.idempotency (namespace, key, event, created_at, digest)
    select space.id, u.key, u.id, t, u.digest
    from unnest(keys, ids, digests) as u(key, id, digest)
    where u.key is not null
    order by u.key, u.id
    on conflict do nothing;

    created_at := t;
    for one in
        select u.place, u.key, u.id, u.digest, i.event, i.digest as first_digest, i.created_at
        from unnest(keys, ids, digests) with ordinality as u(key, id, digest, place)
        left join headrace.idempotency i on i.namespace = space.id and i.key = u.key
        where u.key is not null and i.event is distinct from u.id
        order by u.place
    loop
        if one.event is null then
            raise exception using errcode = '40001',
                message = format('the idempotency key %L has just been given up', one.key);
        elsif one.digest <> one.first_digest then
            raise exception using errcode = 'QU022',
                message = format('the idempotency key %L is that of event %s, which is another one',
                                 one.key, one.event),
                detail = format('event %s of the batch; the key is that of event %s', one.place, one.event);
        end if;
        ids[one.place] := one.event;
        repeated := repeated || one.place::int;
        if one.place = 1 then
            created_at := one.created_at;
        end if;
    end loop;
end $$;
