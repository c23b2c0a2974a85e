-- The metrics of a queue in the last `period`, step by step: a row for each step, at most 180, the
-- oldest first.
--     step, at, seconds   the length of a step, the beginning of this one, and how much of it is
--                         over: less than all in the last one
--     depth, oldest_age   the highest queue depth and the highest age of a waiting delivery, of the
--                         samples taken every five seconds; null: no sample
--     published …         the counts of the step; failed includes abandoned; dead: dead-lettered
--     wait, run           percentiles 50, 95 and 99 of queue latency and run time, of the attempts
--                         that ended in the step: see latencies; null: none did
-- The current step is included once it has lasted five seconds.
-- Raises QU001, QU010, QU011.
create or replace function headrace.history(namespace text, queue text default 'main', period interval default '1 hour')
returns table (step int, at timestamptz, seconds float8, depth bigint, oldest_age float8, published bigint,
               completed bigint, failed bigint,
               retried bigint, dead bigint, wait_p50 float8, wait_p95 float8, wait_p99 float8, run_p50 float8,
               run_p95 float8, run_p99 float8)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    t constant timestamptz := headrace._now();
    q constant headrace.queues := headrace._queue_named(history.namespace, history.queue);
    asked constant float8 := extract(epoch from period);
    length int := (select min(s) from unnest('{5,20,120,480,3600}'::int[]) s where s * 180 >= asked);
    shares constant float8[] := '{0.5,0.95,0.99}';
    starts timestamptz;
    ends timestamptz;
begin
    if asked is null or asked < 5 or length is null then
        raise exception using errcode = 'QU001', message = 'the period of a history is from five seconds to a week';
    end if;
    ends := date_bin(make_interval(secs => length), t, timestamptz 'epoch');
    if ends > t - interval '5 seconds' then
        ends := ends - make_interval(secs => length);
    end if;
    starts := ends - make_interval(secs => length) * (ceil(asked / length) - 1);
    return query
    with happened as materialized (
        select date_bin(make_interval(secs => length), f.at, timestamptz 'epoch') as at,
               sum(f.published)::bigint as published,
               sum(f.completed)::bigint as completed, sum(f.failed)::bigint as failed,
               sum(f.retried)::bigint as retried, sum(f.dead)::bigint as dead
        from (
            select m.at, m.published, m.completed, m.failed, m.retried, m.dead
            from headrace.moments m where length < 60 and m.queue = q.id and m.at >= starts
            union all
            select s.minute, s.published, s.completed, s.failed + s.abandoned, s.retried, s.dead
            from headrace.stats s where length >= 60 and s.queue = q.id and s.minute >= starts
            union all
            select c.at, c.published, c.completed, c.failed + c.abandoned, c.retried, c.dead
            from headrace.counts c where c.queue = q.id and c.at >= starts
        ) f
        group by 1
    )
    select length, p.at, least(length, extract(epoch from t - p.at))::float8,
           case when s.at is not null then coalesce(h.depth, 0) end, h.oldest_age,
           coalesce(c.published, 0), coalesce(c.completed, 0), coalesce(c.failed, 0), coalesce(c.retried, 0),
           coalesce(c.dead, 0),
           wait.seconds[1], wait.seconds[2], wait.seconds[3], run.seconds[1], run.seconds[2], run.seconds[3]
    from generate_series(starts, ends, make_interval(secs => length)) p(at)
    left join headrace.samplings s on s.step = length and s.at = p.at and s.done is null
    left join headrace.history h on h.queue = q.id and h.step = length and h.at = p.at
    left join happened c on c.at = p.at
    cross join lateral (select headrace._percentiles(h.waits, shares) as seconds) wait
    cross join lateral (select headrace._percentiles(h.runs, shares) as seconds) run
    order by p.at;
end $$;
