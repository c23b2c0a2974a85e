-- The queue latencies and run times of the attempts that ended since an earlier call: as
-- histograms, a row for each queue, kind and non-empty bucket, with the upper bounds of the buckets
-- in seconds (the last bucket has no bound).
--     wait   from publishing to the first claim, a requested delay included
--     run    from the claim to its end, or the run time that the worker reported
-- The function reads at most the newest `most` attempts, evenly out of the newest rows of outcomes:
-- where more ended, the result is a sample. It reads only outcomes that are two seconds old,
-- because transactions commit a little later than they write; it misses a transaction that takes
-- longer. The last row has no queue: its `attempts` is where the next call continues. Without
-- `after` it is the only row.
-- Raises QU001.
create or replace function headrace.latencies(bounds float8[], after bigint default null, most int default 2000)
returns table (namespace text, queue text, kind text, bucket int, attempts bigint, seconds float8)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now() - interval '2 seconds';
    reached bigint;
begin
    if coalesce(cardinality(bounds), 0) = 0 or most is null or most not between 1 and 100000 then
        raise exception using errcode = 'QU001',
            message = 'latencies needs the bounds of its buckets, and looks at 1 to 100000 attempts';
    end if;
    reached := headrace._last_outcome(t);
    if latencies.after is not null then
        return query
        select q.space, q.name, d.kind, width_bucket(d.seconds, bounds), count(*), sum(d.seconds)
        from headrace._sampled_latencies(latencies.after, reached, t, most) d join headrace.queues q on q.id = d.queue
        where q.space is not null and (not q.bound or headrace._has_access(q.space))
        group by q.space, q.name, d.kind, width_bucket(d.seconds, bounds);
    end if;
    return query select null::text, null::text, null::text, null::int, greatest(reached, latencies.after), null::float8;
end $$;
