-- Releases ordering keys, for the next delivery of each: these deliveries are no longer in
-- progress. Leaves a token for each of their keys, for the next delivery of the key if one can be
-- seen, else where the last one was. It always leaves one: another delivery may be there that
-- cannot be seen yet.
create or replace function headrace._release_keys(q headrace.queues, t timestamptz, taken headrace.taken[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if not exists (select from unnest(taken) k where k.key is not null) then
        return;
    end if;
    delete from headrace.active a using unnest(taken) k
    where a.queue = q.id and a.key = k.key and a.event = k.event;
    insert into headrace.ready (event, created_at, route, seq, queue, priority, suspect, key)
    select 0, t, coalesce(next.route, last.route), nextval('headrace.ids'), q.id,
           coalesce(next.priority, last.priority), coalesce(next.suspect, false), k.key
    from (select distinct on (k.key) k.key, k.event, k.created_at from unnest(taken) k where k.key is not null) k
    left join lateral (
        select w.route, w.priority, w.suspect from headrace.keyed w where w.queue = q.id and w.key = k.key
        order by w.event limit 1
    ) next on true
    left join lateral (select b.* from headrace._stored_event(k.event, k.created_at) b where next.route is null) last
        on true
    where coalesce(next.route, last.route) is not null;
    perform headrace._wake(q.id);
end $$;
