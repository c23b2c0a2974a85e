-- How many deliveries are claimed before one that nothing else keeps, and about how long that takes:
-- see why. Which of them a worker takes depends on its types, so this is an estimate.
create or replace function headrace._why_in_line(q headrace.queues, s headrace.shown, t timestamptz)
returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select 'in_line',
           case when a.ahead = 0 then 'it is next: a worker that has room takes it' || b.busy
                else format('%s %s claimed before it%s. At the rate of the last five minutes (%s a second) %s',
                            case when a.ahead = 10000 then '10000 deliveries or more' when a.ahead = 1 then 'a delivery'
                                 else a.ahead || ' deliveries' end,
                            case when a.ahead = 1 then 'is' else 'are' end, b.busy, round(r.rate::numeric, 2),
                            coalesce('its turn comes in about ' || ceil(a.ahead / nullif(r.rate, 0)) || ' s',
                                     'its turn does not come')) end,
           a.since, null::timestamptz,
           jsonb_strip_nulls(jsonb_build_object(
               'ahead', a.ahead, 'ahead_is_exact', a.ahead < 10000, 'in_progress', p.deliveries,
               'per_second', round(r.rate::numeric, 3), 'seconds', ceil(a.ahead / nullif(r.rate, 0))))
    from (select n.since, n.ahead from headrace._ahead_in_line(q, s, 10000) n) a
    cross join lateral (
        select (select count(*) from headrace.held h where h.queue = q.id)
               + (select coalesce(sum(l.size - coalesce(bit_count(l.done), 0)), 0)::bigint
                  from headrace.leases l where l.queue = q.id and l.events is not null) as deliveries
    ) p
    cross join lateral (select format('; %s in progress', p.deliveries) as busy) b
    cross join lateral (
        select coalesce(sum(f.attempts), 0) / 300.0 as rate
        from (
            select m.attempts from headrace.stats m
            where m.queue = q.id and m.minute >= date_trunc('minute', t - interval '5 minutes')
            union all
            select c.attempts from headrace.counts c
            where c.queue = q.id and c.at >= date_trunc('minute', t - interval '5 minutes')
        ) f
    ) r
$$;
