-- Stores the events of a batch, queues those that are ready now, in packs where they are many, and
-- counts them; returns their ids. Skips the events at the places in `repeated`.
--     payloads, which, ids   of the events, in their order: the payload, the head, and the id that
--                            its idempotency key has taken; ids null: each draws its own
-- Runs under the settings of _publish_batch. Raises the problem with a payload.
create or replace function headrace._store_batch(
    space headrace.namespaces, heads headrace.head[], payloads jsonb[], which int[], ids bigint[], repeated int[],
    t timestamptz
) returns bigint[]
language plpgsql
as $$
#variable_conflict use_column
declare
    drawn bigint[];
begin
    with item as materialized (
        select coalesce(u.id, nextval('headrace.ids')) as id, u.head, u.payload
        from unnest(payloads, which, _store_batch.ids) with ordinality as u(payload, head, id, place)
        where (repeated is null or u.place <> all (repeated))
          and case when headrace._payload_is_plain(u.payload) then true
                   else headrace._raise_problem(headrace._payload_problem(u.payload), u.place) is null end
    ),
    stored as (
        insert into headrace.events (id, created_at, route, namespace, version, priority, max_retries, type, tags,
                                     payload, details, key)
        select i.id, t, h.route, space.id, space.version, h.priority, h.max_retries, h.type, h.tags,
               coalesce(i.payload, '{}'), h.details, h.key
        from item i join unnest(heads) h on h.n = i.head
    ),
    pack as materialized (
        select i.head, array_agg(i.id order by i.id) as ids, count(*) >= 16 as is_pack from item i
        group by i.head, headrace._pack(i.id)
    ),
    queued as (
        insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
        select m.event, t, h.route, m.event, q, h.priority, case when p.is_pack then p.ids end
        from pack p join unnest(heads) h on h.n = p.head cross join lateral unnest(h.queues) q
        cross join lateral unnest(case when p.is_pack then p.ids[:1] else p.ids end) as m(event)
        where h.key is null and (h.due_at is null or h.due_at <= t)
    ),
    counted as (
        insert into headrace.counts (at, namespace, queue, published)
        select t, space.id, q, sum(cardinality(p.ids))
        from pack p join unnest(heads) h on h.n = p.head cross join lateral unnest(h.queues) q
        group by q
    )
    select array_agg(id) into drawn from item;
    return drawn;
end $$;
