-- The metrics of a queue: the number of deliveries in each place now, and the counts of the last
-- `period`, to the minute. The deliveries of a place are counted to 100,000, and beyond that
-- estimated from a sample; is_exact: nothing was estimated.
-- claimed_ahead: deliveries that nodes have claimed beyond the handlers that they run at once, so
-- that they wait there for a handler. processing: the other claimed ones. Whether such a one has
-- begun is known to its worker alone.
-- Raises QU010, QU011.
create or replace function headrace.stats(
    namespace text, queue text default 'main', period interval default '5 minutes'
) returns table (ready bigint, delayed bigint, processing bigint, claimed_ahead bigint,
               dead_letters bigint, oldest_ready_at timestamptz,
               published bigint, completed bigint, failed bigint, abandoned bigint, dead_lettered bigint,
               attempts bigint, average_ms float8, is_exact boolean)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    q headrace.queues;
    since timestamptz := date_trunc('minute', headrace._now() - period);  -- stats are kept by the minute
    bound constant int := 100000;
begin
    perform headrace._check_access(stats.namespace);
    select * into q from headrace.queues where queues.space = stats.namespace and queues.name = stats.queue;
    if not found then
        perform headrace._raise_no_such_queue(stats.namespace, stats.queue);
    end if;
    return query
    with here as materialized (
        select headrace._depth(q.id, bound) as ready,
               (select count(*) from (select from headrace.delayed d where d.queue = q.id order by d.event
                                      limit bound) d) as delayed,
               (select count(*) from (select from headrace.dead_letters x where x.queue = q.id order by x.event
                                      limit bound) x) as dead_letters,
               (select count(*) from headrace.held h where h.queue = q.id)
               + (select coalesce(sum(l.size - coalesce(bit_count(l.done), 0)), 0)::bigint
                  from headrace.leases l where l.queue = q.id and l.events is not null) as claimed,
               (select coalesce(sum(greatest(c.size - i.at_once, 0)), 0)::bigint
                from (select l.instance, sum(case when l.events is null then h.size
                                                  else l.size - coalesce(bit_count(l.done), 0) end) as size
                      from headrace.leases l
                      cross join lateral (select count(*) as size from headrace.held h where h.lease = l.id) h
                      where l.queue = q.id and l.instance is not null group by l.instance) c
                join headrace.instances i on i.instance = c.instance) as claimed_ahead
    )
    select case when here.ready < bound then here.ready
                else greatest(bound, headrace._sampled_count('ready', q.id)) end,
           case when here.delayed < bound then here.delayed
                else greatest(bound, headrace._sampled_count('delayed', q.id)) end,
           here.claimed - here.claimed_ahead, here.claimed_ahead,
           case when here.dead_letters < bound then here.dead_letters
                else greatest(bound, headrace._sampled_count('dead_letters', q.id)) end,
           headrace._oldest_ready(q.id),
           c.published, c.completed, c.failed, c.abandoned, c.dead, c.attempts, c.ms / nullif(c.timed, 0)::float8,
           greatest(here.ready, here.delayed, here.dead_letters) < bound
    from here
    cross join (
        select coalesce(sum(f.published), 0)::bigint as published, coalesce(sum(f.completed), 0)::bigint as completed,
               coalesce(sum(f.failed), 0)::bigint as failed, coalesce(sum(f.abandoned), 0)::bigint as abandoned,
               coalesce(sum(f.dead), 0)::bigint as dead, coalesce(sum(f.attempts), 0)::bigint as attempts,
               coalesce(sum(f.timed), 0) as timed, coalesce(sum(f.ms), 0) as ms
        from (
            select s.published, s.completed, s.failed, s.abandoned, s.dead, s.attempts, s.timed, s.ms
            from headrace.stats s where s.queue = q.id and s.minute >= since
            union all
            select n.published, n.completed, n.failed, n.abandoned, n.dead, n.attempts, n.timed, n.ms
            from headrace.counts n where n.queue = q.id and n.at >= since
        ) f
    ) c;
end $$;
