-- Stores and queues events, with a few statements however many they are: see publish. checked: the caller may publish in the
-- namespace; a tick, whoever calls it, publishes in all of them.
create or replace function headrace.publish_batch(
    namespace text, events jsonb, enforce boolean, t timestamptz, checked boolean default true,
    out ids bigint[], out pressure boolean, out repeated int[], out created_at timestamptz
)
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    space headrace.namespaces;
    heads headrace.head[];
    payloads jsonb[];       -- of the events, in their order
    which int[];            -- head each of them has
    takers int[];
    alike jsonb;
    drawn bigint[];
begin
    select * into space from headrace.namespaces s
    where s.name = publish_batch.namespace and (not s.bound or not checked or headrace.admits(s.name));
    if not found then
        perform headrace.no_such_queue(publish_batch.namespace, 'main');
    end if;
    created_at := t;
    pressure := false;
    if jsonb_typeof(events) = 'object' then
        events := jsonb_build_array(events);
    elsif jsonb_typeof(events) is distinct from 'array' then
        raise exception using errcode = 'QU001', message = 'publish takes a JSON array of events, or one event';
    end if;

    if jsonb_array_length(events) = 1 then
        alike := events #> '{0,payloads}';  -- in one go, as below: a step on the way would copy it all
        if jsonb_typeof(alike) = 'array' and not events @? '$[0].payload' and not events @? '$[0].idempotency_key' then
            heads := headrace.heads(space, array[(events #- '{0,payloads}') -> 0], '{1}', t);
            if alike <> '[]' then
                select * into ids, pressure from headrace.publish_alike(space, heads[1], alike, enforce, t);
            end if;
            ids := coalesce(ids, '{}');
            return;
        end if;
    end if;
    with given as materialized (
        select g.place, g.event - '{payload,payloads}'::text[] as header, g.payload from headrace.one_by_one(events) g
    ),
    header as materialized (
        select row_number() over (order by min(place)) as n, min(place) as place, header from given group by header
    )
    select (select headrace.heads(space, array_agg(h.header order by h.n), array_agg(h.place order by h.n), t) from header h),
           array_agg(g.payload order by g.place), array_agg(h.n order by g.place)
    into heads, payloads, which
    from given g join header h on h.header = g.header;
    if payloads is null then
        ids := '{}';
        return;
    end if;

    takers := array(select distinct q from unnest(heads) h, unnest(h.queues) q);
    if exists (select from unnest(heads) h where h.idempotency_key is not null) then
        select * into ids, repeated, created_at from headrace.keep_keys(space, heads, payloads, which, t);
        if cardinality(repeated) = cardinality(payloads) then   -- also when the queue is full by now
            perform headrace.confirm();
            return;
        end if;
    end if;
    if space.guarded then
        pressure := headrace.guard(takers, enforce or not headrace.is_administrator(), t);
    end if;

    with item as materialized (
        select coalesce(u.id, nextval('headrace.ids')) as id, u.head, u.payload
        from unnest(payloads, which, publish_batch.ids) with ordinality as u(payload, head, id, place)
        where (repeated is null or u.place <> all (repeated))
          and case when headrace.is_short(u.payload) then true
                   else headrace.refuse(headrace.payload_problem(u.payload), u.place) is null end
    ),
    stored as (
        insert into headrace.events (id, created_at, route, namespace, version, priority, max_retries, type, tags, payload, details, key)
        select i.id, t, h.route, space.id, space.version, h.priority, h.max_retries, h.type, h.tags, coalesce(i.payload, '{}'), h.details, h.key
        from item i join unnest(heads) h on h.n = i.head
    ),
    pack as materialized (
        select i.head, array_agg(i.id order by i.id) as ids, count(*) >= 16 as is_pack from item i group by i.head, i.id >> 7
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
    if drawn[1] <= space.floor then
        perform headrace.behind(drawn[1]);
    end if;
    if exists (select from unnest(heads) h where h.due_at > t or h.key is not null) then
        perform headrace.put_aside(heads, drawn, array(
            select u.head from unnest(which) with ordinality as u(head, place)
            where repeated is null or u.place <> all (repeated) order by u.place), t);
    end if;
    ids := coalesce(ids, drawn);
    perform headrace.wake(q) from unnest(takers) q;
end $$;
