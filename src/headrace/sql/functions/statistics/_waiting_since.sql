-- How long a queue has had something to claim: by route, the time since when its longest waiting
-- delivery has been ready. Every report that calls something late asks this function. A fresh
-- delivery has been ready since it was published, a delivery that was delayed, retried, released,
-- reset or redriven since it came back (ready_at), a delivery with an ordering key since its token
-- was left. The function reads the first row of each pair of priority and route, because seq is the
-- order of entry; a token counts if its key has a delivery whose turn it is. It reads at most 1,000
-- rows of a pair, and 1,000 pairs of a queue.
create or replace function headrace._waiting_since(queue int) returns table (route bigint, since timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_sort = off
as $$
    select p.route, min(w.since)
    from headrace._ready_routes(_waiting_since.queue, 1000) p
    cross join lateral (
        select case when r.key is null then coalesce(r.ready_at, r.created_at)
                    else greatest(r.created_at, k.created_at) end as since
        from (
            select r.key, r.created_at, r.ready_at from headrace.ready r
            where r.queue = _waiting_since.queue and r.suspect = p.suspect and r.priority = p.priority
              and r.route = p.route
            order by r.seq limit 1000
        ) r
        left join lateral (
            select k.created_at from headrace.keyed k where k.queue = _waiting_since.queue and k.key = r.key
              and not exists (select from headrace.active a where a.queue = _waiting_since.queue and a.key = r.key)
            order by k.event limit 1
        ) k on r.key is not null
        where r.key is null or k.created_at is not null
        limit 1
    ) w
    group by p.route
$$;
