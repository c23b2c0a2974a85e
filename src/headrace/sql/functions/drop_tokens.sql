-- Removes tokens that are good for nothing, because their key has a delivery in work, or none that waits: those that come first in pairs of a
-- priority and these routes. For claims that look for the turns of keys themselves: see oldest.
-- Concurrency: skips what is locked.
create or replace function headrace.drop_tokens(q headrace.queues, priority smallint, routes bigint[]) returns void
language sql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
as $$
    delete from headrace.ready r where r.ctid = any (array(select t.ctid from headrace.ready t where t.ctid = any (array(
        select f.ctid
        from unnest(routes) as w(route)
        cross join (values (false), (true)) as s(suspect)
        cross join lateral (
            select r.key from headrace.ready r
            where r.queue = q.id and r.suspect = s.suspect and r.priority = drop_tokens.priority and r.route = w.route
            order by r.seq limit 1
        ) head
        cross join lateral (
            select r.ctid, r.key from headrace.ready r
            where r.queue = q.id and r.suspect = s.suspect and r.priority = drop_tokens.priority and r.route = w.route
              and head.key is not null  -- here: it must not be looked at before the head
            order by r.seq limit 1000
        ) f
        where f.key is not null
          and ((select true from headrace.active a where a.queue = q.id and a.key = f.key)
               or (select true from headrace.keyed k where k.queue = q.id and k.key = f.key limit 1) is null)))
        for update skip locked))
$$;
