-- Puts the deliveries of a part of a file into their places: see _import_events.
create or replace function headrace._deliver_arrivals(
    q headrace.queues, arrived headrace.arrival[], t timestamptz
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    live headrace.arrival[] := array(select a from unnest(arrived) a where not a.was_here and a.place <> 'dead'
                                     order by a.id);
begin
    insert into headrace.dead_letters (event, queue, namespace, created_at, died_at, status, reason, error,
                                       fingerprint, attempts,
        failures, crashes, route, priority, max_retries, type, tags, payload, details, key)
    select a.id, q.id, q.namespace, a.created_at, (a.item ->> 'died_at')::timestamptz, a.item ->> 'status',
           a.item ->> 'reason', a.item ->> 'error', a.item ->> 'fingerprint', a.attempts, a.failures, a.crashes,
           case when a.item -> 'hollow' = 'true' then 0 else a.route end,
           a.priority, a.max_retries, a.type, a.tags, a.payload, a.details, a.key
    from unnest(arrived) a where not a.was_here and a.place = 'dead';

    insert into headrace.delayed (event, created_at, due_at, route, queue, attempts, priority, failures, crashes,
                                  suspect, key)
    select a.id, a.created_at, a.due_at, a.route, q.id, a.attempts, a.priority, a.failures, a.crashes, a.suspect, a.key
    from unnest(live) a where a.place = 'delayed';
    -- A delivery that waits for its retry keeps its key active.
    insert into headrace.active (queue, key, event)
    select q.id, a.key, a.id from unnest(live) a where a.place = 'delayed' and a.holds_key and a.key is not null
    on conflict do nothing;

    insert into headrace.keyed (queue, key, event, created_at, route, attempts, priority, failures, crashes, suspect)
    select q.id, a.key, a.id, a.created_at, a.route, a.attempts, a.priority, a.failures, a.crashes, a.suspect
    from unnest(live) a where a.place = 'ready' and a.key is not null;
    perform headrace._add_key_token(q.id, a.suspect, a.priority, a.route, a.key)
    from (select distinct on (a.key) a.* from unnest(live) a where a.place = 'ready' and a.key is not null
          order by a.key, a.id) a;

    -- Deliveries that were never attempted are packed, as in _fill_from_past.
    insert into headrace.ready (event, created_at, route, seq, queue, priority, pack)
    select m.event, p.created_at, p.route, m.event, q.id, p.priority, case when p.is_pack then p.ids end
    from (
        select a.created_at, a.route, a.priority, array_agg(a.id order by a.id) as ids, count(*) >= 16 as is_pack
        from unnest(live) a
        where a.place = 'ready' and a.key is null and (a.attempts, a.failures, a.crashes, a.suspect) = (0, 0, 0, false)
        group by a.created_at, a.route, a.priority, headrace._pack(a.id)
    ) p
    cross join lateral unnest(case when p.is_pack then p.ids[:1] else p.ids end) as m(event);
    insert into headrace.ready (event, created_at, route, seq, queue, attempts, priority, failures, crashes,
                                suspect, ready_at)
    select a.id, a.created_at, a.route, nextval('headrace.ids'), q.id, a.attempts, a.priority, a.failures, a.crashes,
           a.suspect, t
    from unnest(live) a
    where a.place = 'ready' and a.key is null and (a.attempts, a.failures, a.crashes, a.suspect) <> (0, 0, 0, false);

    insert into headrace.counts (at, namespace, queue, published)
    select t, q.namespace, q.id, cardinality(live) where live <> '{}';
end $$;
