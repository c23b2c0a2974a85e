-- The queues in which something can be claimed, but for those that are paused: how many deliveries wait, counted to 10,000, and for how
-- long the one that has waited longest: see waits.
create or replace function headrace.longest_waits()
returns table (namespace text, queue text, waiting bigint, since timestamptz, waited interval)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select q.space, q.name, headrace.depth(q.id, 10000), w.since, t.now - w.since
    from (select headrace.now() as now) t
    cross join headrace.queues q
    cross join lateral (select min(o.since) as since from headrace.waits(q.id) o) w
    where q.id in (select headrace.waiting_queues()) and q.space is not null and (not q.bound or headrace.admits(q.space)) and q.state <> 'paused' and w.since is not null
    order by w.since
$$;
