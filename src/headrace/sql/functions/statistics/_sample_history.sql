-- Samples queue depths, and the latencies and run times of attempts since the last sample, and
-- stores them for `history`; once in five seconds, however often ticks run. Its cost grows with the
-- queues in which something waits, not with the deliveries there; where the queues are so many that
-- a sample takes long, it samples less often, and uses at most a tenth of the time. A failure
-- raises a warning, and the tick goes on.
-- Concurrency: one call at a time, and not while another session folds counts; a second call leaves
-- the work to the first. Never waits.
create or replace function headrace._sample_history(t timestamptz) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    moment constant timestamptz := date_bin(interval '5 seconds', t, timestamptz 'epoch');
    steps constant int[] := '{5,20,120,480,3600}';
    began constant timestamptz := clock_timestamp();
    -- One slow sample is a hiccup, two in a row are the actual cost.
    pause constant interval := make_interval(secs => coalesce(
        (select case when count(s.took) = 2 then 10 * min(s.took) end
         from (select s.took from headrace.samplings s where s.step = 5 and s.at < moment order by s.at desc
               limit 2) s), 0));
    reached bigint;
    last bigint;
begin
    if not headrace._try_lock('counts')
       or exists (select from headrace.samplings s where s.step = 5
                      and (s.at = moment or s.at > moment - pause and s.at < moment)) then
        return;
    end if;
    reached := headrace._last_outcome(t - interval '2 seconds');
    last := coalesce((select s.reached from headrace.samplings s where s.step = 5 order by s.at desc limit 1), reached);
    begin
        with measured as materialized (
            select m.queue, m.kind, headrace._latency_bucket(m.seconds) as bucket, count(*)::int as size
            from headrace._sampled_latencies(last, reached, t - interval '2 seconds', 1000) m
            group by 1, 2, 3
        ),
        histogram as (
            select m.queue, m.kind, array(
                select coalesce(o.size, 0)
                from generate_series(1, max(m.bucket)) b
                left join measured o on o.queue = m.queue and o.kind = m.kind and o.bucket = b
                order by b) as sizes
            from measured m group by m.queue, m.kind
        ),
        seen as materialized (
            select queue, max(s.depth) as depth, extract(epoch from t - min(s.oldest_at))::float8 as oldest_age,
                   max(s.waits) as waits, max(s.runs) as runs
            from (
                select d.queue, d.depth, d.oldest_at, null::int[] as waits, null::int[] as runs
                from headrace._waiting_depths() d
                union all
                select h.queue, null, null, case when h.kind = 'wait' then h.sizes end,
                       case when h.kind = 'run' then h.sizes end
                from histogram h
            ) s
            group by queue
        )
        insert into headrace.history as h (queue, step, at, depth, oldest_age, waits, runs)
        select s.queue, step, date_bin(make_interval(secs => step), moment, timestamptz 'epoch'),
               coalesce(s.depth, 0), s.oldest_age, s.waits, s.runs
        from seen s cross join unnest(steps) step
        on conflict (queue, step, at) do update set
            depth = greatest(h.depth, excluded.depth),
            oldest_age = greatest(h.oldest_age, excluded.oldest_age),
            waits = headrace._added_histograms(h.waits, excluded.waits),
            runs = headrace._added_histograms(h.runs, excluded.runs);
    exception when others then
        raise warning 'headrace: to sample the queues has failed: %', sqlerrm;
    end;
    insert into headrace.samplings as s (step, at, reached, took)
    select step, date_bin(make_interval(secs => step), moment, timestamptz 'epoch'), greatest(reached, last),
           case when step = 5 then extract(epoch from clock_timestamp() - began) end
    from unnest(steps) step
    on conflict (step, at) do update set reached = excluded.reached;
end $$;
