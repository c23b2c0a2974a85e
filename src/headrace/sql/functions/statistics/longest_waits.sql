-- The queues with ready deliveries, except paused ones: the number of waiting deliveries, counted
-- to 10,000, and how long the longest waiting one has waited: see _waiting_since.
create or replace function headrace.longest_waits()
returns table (namespace text, queue text, waiting bigint, since timestamptz, waited interval)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select q.space, q.name, headrace._depth(q.id, 10000), w.since, t.now - w.since
    from (select headrace._now() as now) t
    cross join headrace.queues q
    cross join lateral (select min(o.since) as since from headrace._waiting_since(q.id) o) w
    where q.id in (select headrace._waiting_queues()) and q.space is not null
      and (not q.bound or headrace._has_access(q.space)) and q.state <> 'paused' and w.since is not null
    order by w.since
$$;
