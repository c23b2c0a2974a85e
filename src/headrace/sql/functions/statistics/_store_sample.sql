-- Measures the depths of some queues, and the latencies and run times of attempts that ended with
-- the outcomes after `last` and up to `reached`, and stores them as of `moment`: see
-- _sample_history.
create or replace function headrace._store_sample(
    moment timestamptz, queues int[], last bigint, reached bigint, t timestamptz
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
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
            from headrace._waiting_depths(queues) d
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
    from seen s cross join unnest('{5,20,120,480,3600}'::int[]) step
    on conflict (queue, step, at) do update set
        depth = greatest(h.depth, excluded.depth),
        oldest_age = greatest(h.oldest_age, excluded.oldest_age),
        waits = headrace._added_histograms(h.waits, excluded.waits),
        runs = headrace._added_histograms(h.runs, excluded.runs);
end $$;
