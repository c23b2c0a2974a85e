-- The number of messages in a queue (queue_length), the number that could be read now
-- (queue_visible_length), the ages of the newest and the oldest, and the number there ever were.
-- The function counts the messages of a queue of events: its cost grows with them.
-- Raises 42P01.
create or replace function pgmq.metrics(queue_name text) returns pgmq.metrics_result
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    place record := pgmq._queue(metrics.queue_name);
    mine constant int := (place.q).id;
    t constant timestamptz := headrace._now();
    result pgmq.metrics_result;
begin
    select metrics.queue_name, coalesce(sum(m.size), 0), floor(extract(epoch from t - max(m.newest))),
           floor(extract(epoch from t - min(m.oldest))),
           (select coalesce(sum(case place.kind when 'dead' then c.dead else c.published end), 0)
            from (select f.dead, f.published from headrace.totals f where f.queue = mine
                  union all
                  select n.dead, n.published from headrace.counts n where n.queue = mine) c),
           t, coalesce(sum(m.size) filter (where m.visible), 0), null
    into result
    from (
        select sum(coalesce(cardinality(r.pack), 1)) as size, true as visible, max(r.created_at) as newest,
               min(r.created_at) as oldest
        from headrace.ready r where r.queue = mine and r.key is null and place.kind <> 'dead'
        union all
        select count(*), true, max(k.created_at), min(k.created_at) from headrace.keyed k where k.queue = mine
            and place.kind <> 'dead'
        union all
        select count(*), d.due_at <= t, max(d.created_at), min(d.created_at)
        from headrace.delayed d where d.queue = mine and place.kind <> 'dead' group by 2
        union all
        select count(*), l.until <= t, max(h.created_at), min(h.created_at)
        from headrace.held h join headrace.leases l on l.id = h.lease where h.queue = mine
            and place.kind <> 'dead' group by 2
        union all
        select sum(l.size - coalesce(bit_count(l.done), 0)), l.until <= t,
               max((select max(c) from unnest(l.created_at) c)), min((select min(c) from unnest(l.created_at) c))
        from headrace.leases l where l.queue = mine and l.events is not null and place.kind <> 'dead' group by 2
        union all
        select count(*), coalesce(r.vt <= t, true), max(x.died_at), min(x.died_at)
        from headrace.dead_letters x left join pgmq._letters_read r on r.queue = x.queue and r.event = x.event
        where x.queue = mine and place.kind = 'dead' group by 2
    ) m;
    return result;
end $$;

-- metrics of every queue that list_queues lists.
create or replace function pgmq.metrics_all() returns setof pgmq.metrics_result
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select m.* from pgmq.list_queues() q cross join lateral pgmq.metrics(q.queue_name) m $$;
