-- Removes useless tokens, because their key has a delivery in progress, or none that waits: the
-- first ones in pairs of a priority and these routes. For claims that look for the turns of keys
-- themselves: see _next_in_strict_order.
-- Concurrency: skips locked rows.
create or replace function headrace._drop_key_tokens(q headrace.queues, priority smallint, routes bigint[]) returns void
language sql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_sort = off
as $$
    delete from headrace.ready r
    where r.ctid = any (array(select t.ctid from headrace.ready t where t.ctid = any (array(
        select f.ctid
        from unnest(routes) as w(route)
        cross join (values (false), (true)) as s(suspect)
        cross join lateral (
            select r.key from headrace.ready r
            where r.queue = q.id and r.suspect = s.suspect and r.priority = _drop_key_tokens.priority
              and r.route = w.route
            order by r.seq limit 1
        ) head
        cross join lateral (
            select r.ctid, r.key from headrace.ready r
            where r.queue = q.id and r.suspect = s.suspect and r.priority = _drop_key_tokens.priority
              and r.route = w.route
              and head.key is not null  -- placed here, so that this table is not read before the head
            order by r.seq limit 1000
        ) f
        where f.key is not null
          and ((select true from headrace.active a where a.queue = q.id and a.key = f.key)
               or (select true from headrace.keyed k where k.queue = q.id and k.key = f.key limit 1) is null)))
        for update skip locked))
$$;
