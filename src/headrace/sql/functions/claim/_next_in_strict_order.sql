-- The deliveries of one priority that a strict queue hands out next, the lowest event first, at
-- most `wanted`: of each, its row in `ready` (seq; several have the seq of their pack), or its
-- ordering key. watched: only these routes; null: all. fresh: the routes that have work at this
-- priority. The function looks at three places, each in the order of events:
--     deliveries that came back (retries, delays that are over): by their own index, skipping those
--       of other priorities
--     ordering keys: the first delivery of each, unless one of the key is in progress; skipping
--       those that wait behind it
--     fresh deliveries: as many as wanted of each route
-- Takes nothing. Its caller is the only claim on the queue: see _lock_strict_order.
create or replace function headrace._next_in_strict_order(
    q headrace.queues, priority smallint, watched bigint[], fresh bigint[], wanted int, suspects boolean
) returns headrace.ready[]
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_nestloop = on
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    again headrace.ready[];
    turns headrace.ready[];
    bound bigint;       -- no fresh delivery above it is wanted
begin
    again := array(
        select r from headrace.ready r
        where r.queue = q.id and r.seq <> r.event and r.key is null and r.priority = priority
          and (watched is null or r.route = any (watched)) and (suspects or not r.suspect)
        order by r.event limit wanted);
    turns := array(
        select row(k.event, k.created_at, k.route, k.event, k.queue, k.attempts, k.priority, k.failures,
                   k.crashes, k.suspect, null, k.key, null)::headrace.ready
        from headrace.keyed k
        where k.queue = q.id and k.priority = priority
          and (watched is null or k.route = any (watched)) and (suspects or not k.suspect)
          and (select true from headrace.active a where a.queue = q.id and a.key = k.key) is null
          and (select true from headrace.keyed b where b.queue = q.id and b.key = k.key and b.event < k.event
               limit 1) is null
        order by k.event limit wanted);
    bound := least((again[wanted]).event, (turns[wanted]).event, 9223372036854775807);
    return array(
        select c from (
            select a from unnest(again) a
            union all
            select t from unnest(turns) t
            union all
            select row(m.event, r.created_at, r.route, r.seq, r.queue, 0, r.priority, 0, 0, false, null, null,
                       r.ready_at)::headrace.ready
            from unnest(fresh) as w(route)
            -- Members of a pack are of one bucket of 128 places, so the rows that may hold one of the
            -- first end with a bucket.
            cross join lateral (
                select headrace._last_of_pack(max(f.seq)) as seq from (
                    select s.seq, sum(s.size) over (order by s.seq) - s.size as before
                    from (
                        select r.seq, coalesce(cardinality(r.pack), 1) as size from headrace.ready r
                        where r.queue = q.id and not r.suspect and r.priority = priority and r.route = w.route
                          and r.seq = r.event and r.key is null and r.seq <= bound
                        order by r.seq limit wanted
                    ) s
                ) f where f.before < wanted
            ) to_here
            cross join lateral (
                select r.* from headrace.ready r
                where r.queue = q.id and not r.suspect and r.priority = priority and r.route = w.route
                  and r.seq = r.event and r.key is null and r.seq <= least(to_here.seq, bound)
                -- without it, old statistics would reverse the join, beginning with every waiting
                -- row
                offset 0
            ) r
            cross join lateral unnest(coalesce(r.pack, array[r.event])) as m(event)
        ) as u(c)
        order by (c).event limit wanted);
end $$;
