-- The queues that are too full, are paused or draining, or fail: see attention. home: only this
-- namespace; null: all.
create or replace function headrace._attention_to_queues(home int, t timestamptz) returns setof headrace.finding
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with queue as materialized (
        select q.* from headrace.queues q where q.space is not null and (home is null or q.namespace = home)
    )
    select case when d.depth >= q.max_queue_depth then 'queue_full' else 'above_watermark' end,
           case when d.depth >= q.max_queue_depth then 'critical' else 'warning' end,
           q.space, q.name::text,
           jsonb_build_object('depth', d.depth, 'limit', case when d.depth >= q.max_queue_depth then q.max_queue_depth
                                                              else q.high_watermark end),
           null::timestamptz
    from queue q
    cross join lateral (select d.depth from headrace.depths d where d.queue = q.id order by d.at desc limit 1) d
    where d.depth >= least(q.max_queue_depth, q.high_watermark)
    union all
    select q.state, case q.state when 'paused' then 'warning' else 'notice' end, q.space, q.name,
           jsonb_strip_nulls(jsonb_build_object('waiting', d.depth, 'actor', l.actor)), l.at
    from queue q
    cross join lateral (select headrace._depth(q.id, 10000) as depth) d
    cross join lateral headrace._last_state_change(q.namespace, q.name) l
    where q.state in ('paused', 'draining') and d.depth > 0
    union all
    select 'failing', case when s.failures * 2 >= s.attempts then 'critical' else 'warning' end, q.space, q.name,
           jsonb_build_object('attempts', s.attempts, 'failures', s.failures), null
    from queue q
    cross join lateral (
        select sum(f.attempts) as attempts, sum(f.failures) as failures
        from (
            select s.attempts, s.failed + s.abandoned as failures from headrace.stats s
            where s.queue = q.id and s.minute >= date_trunc('minute', t - interval '5 minutes')
            union all
            select c.attempts, c.failed + c.abandoned from headrace.counts c
            where c.queue = q.id and c.at >= t - interval '5 minutes'
        ) f
    ) s
    where s.attempts >= 10 and s.failures * 5 >= s.attempts
    union all
    select 'dead_letters', 'warning', q.space, q.name,
           jsonb_build_object('letters', g.letters, 'fingerprint', g.fingerprint, 'alike', g.alike, 'error', (
               select headrace._error_line(x.reason, x.error) from headrace.dead_letters x where x.queue = q.id
                   and x.event = g.last)),
           g.since
    from queue q
    cross join lateral (
        select sum(count(*)) over () as letters, x.fingerprint, count(*) as alike, max(x.event) as last,
               min(min(x.died_at)) over () as since
        from (
            select x.fingerprint, x.event, x.died_at from headrace.dead_letters x
            where x.queue = q.id and x.died_at > t - interval '1 hour'
            order by x.died_at desc limit 1000
        ) x
        group by x.fingerprint
        order by count(*) desc, x.fingerprint limit 1
    ) g
$$;
