-- The deliveries of these events are no longer in work: their keys are free, and each gets a token, for the next delivery of
-- the key if one can be seen, else where the last one was. Always: another may be there that cannot be seen yet.
create or replace function headrace.free_keys(q headrace.queues, taken headrace.taken[]) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    delete from headrace.active a using unnest(taken) k
    where k.key is not null and a.queue = q.id and a.key = k.key and a.event = k.event;
    insert into headrace.ready (event, created_at, route, seq, queue, priority, suspect, key)
    select 0, headrace.now(), coalesce(next.route, last.route), nextval('headrace.ids'), q.id,
           coalesce(next.priority, last.priority, 5::smallint), coalesce(next.suspect, false), k.key
    from (select distinct on (k.key) k.key, k.event, k.created_at from unnest(taken) k where k.key is not null) k
    left join lateral (
        select w.route, w.priority, w.suspect from headrace.keyed w where w.queue = q.id and w.key = k.key order by w.event limit 1
    ) next on true
    left join lateral headrace.body(k.event, k.created_at) last on true
    where coalesce(next.route, last.route) is not null
$$;
