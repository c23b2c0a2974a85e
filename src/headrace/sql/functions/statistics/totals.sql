-- The lifetime counts of each queue, and its claims now: numbers that a monitor asks for every few
-- seconds. The cost grows with the queues and the claims, not with the queue depth. The counts only
-- grow; they survive the retention of stats.
--     timed, ms   the number of attempts with a reported run time, and the sum of those times
--     recent_attempts, recent_failures   the attempts that ended in the last five minutes, and
--                                        those of them that failed or were abandoned
--     leases      claims that hold deliveries; processing: the deliveries in them; oldest_claim_at:
--                 when the oldest was made
create or replace function headrace.totals()
returns table (namespace text, queue text, state text, published bigint, completed bigint, failed bigint,
               retried bigint, abandoned bigint,
               dead_lettered bigint, attempts bigint, timed bigint, ms bigint, recent_attempts bigint,
               recent_failures bigint, leases bigint, processing bigint, oldest_claim_at timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with happened as (
        select s.queue, sum(s.published)::bigint as published, sum(s.completed)::bigint as completed,
               sum(s.failed)::bigint as failed,
               sum(s.retried)::bigint as retried, sum(s.abandoned)::bigint as abandoned, sum(s.dead)::bigint as dead,
               sum(s.attempts)::bigint as attempts, sum(s.timed)::bigint as timed, sum(s.ms)::bigint as ms
        from (
            select f.queue, f.published, f.completed, f.failed, f.retried, f.abandoned, f.dead, f.attempts,
                   f.timed, f.ms
            from headrace.totals f
            union all
            select c.queue, c.published, c.completed, c.failed, c.retried, c.abandoned, c.dead, c.attempts,
                   c.timed, c.ms
            from headrace.counts c
        ) s
        group by s.queue
    ),
    lately as (
        select f.queue, sum(f.attempts)::bigint as attempts, sum(f.failed + f.abandoned)::bigint as failures
        from (
            select s.queue, s.attempts, s.failed, s.abandoned
            from headrace.queues q cross join lateral (
                select s.queue, s.attempts, s.failed, s.abandoned from headrace.stats s
                where s.queue = q.id and s.minute >= date_trunc('minute', headrace._now() - interval '5 minutes')
            ) s
            where q.space is not null
            union all
            select c.queue, c.attempts, c.failed, c.abandoned from headrace.counts c
            where c.at >= date_trunc('minute', headrace._now() - interval '5 minutes')
        ) f
        group by f.queue
    ),
    -- A lease with held rows lives until it expires, even if all of them are finished.
    claim as (
        select l.queue, l.picked_at,
               case when l.events is not null then l.size - coalesce(bit_count(l.done), 0)
                    else coalesce(h.size, 0) end as size
        from headrace.leases l
        left join (select d.lease, count(*) as size from headrace.held d group by d.lease) h on h.lease = l.id
    ),
    held as (
        select c.queue, count(*) as leases, sum(c.size)::bigint as processing, min(c.picked_at) as oldest_at
        from claim c where c.size > 0 group by c.queue
    )
    select q.space, q.name, q.state, coalesce(s.published, 0), coalesce(s.completed, 0), coalesce(s.failed, 0),
           coalesce(s.retried, 0),
           coalesce(s.abandoned, 0), coalesce(s.dead, 0), coalesce(s.attempts, 0), coalesce(s.timed, 0),
           coalesce(s.ms, 0), coalesce(r.attempts, 0), coalesce(r.failures, 0),
           coalesce(h.leases, 0), coalesce(h.processing, 0), h.oldest_at
    from headrace.queues q
    left join happened s on s.queue = q.id
    left join lately r on r.queue = q.id
    left join held h on h.queue = q.id
    where q.space is not null and (not q.bound or headrace._has_access(q.space))
    order by q.space, q.name
$$;
