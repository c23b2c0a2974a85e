-- How long attempts waited and ran, of those that ended since a call before: as histograms, a row for each queue, kind and bucket that
-- has some, the upper bounds of the buckets given in seconds (a last bucket has no bound).
--     wait   from publishing to the first claim, an asked for delay included
--     run    from the claim to its end, or what the worker said it took
-- At most the newest `most` attempts are looked at, evenly out of the newest rows of outcomes: where more happened, it is a
-- sample. Only what is two seconds old is looked at, because transactions commit a little later than they write; one that takes
-- longer is missed. The last row has no queue: its `attempts` is where the next call goes on. Without `after` it tells just that.
-- Raises QU001.
create or replace function headrace.latencies(bounds float8[], after bigint default null, most int default 2000)
returns table (namespace text, queue text, kind text, bucket int, attempts bigint, seconds float8)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now() - interval '2 seconds';
    reached bigint;
begin
    if coalesce(cardinality(bounds), 0) = 0 or most is null or most not between 1 and 100000 then
        raise exception using errcode = 'QU001', message = 'latencies needs the bounds of its buckets, and looks at 1 to 100000 attempts';
    end if;
    reached := headrace.last_outcome(t);
    if latencies.after is not null then
        return query
        select q.space, q.name, d.kind, width_bucket(d.seconds, bounds), count(*), sum(d.seconds)
        from headrace.measured(latencies.after, reached, t, most) d join headrace.queues q on q.id = d.queue
        where q.space is not null and (not q.bound or headrace.admits(q.space))
        group by q.space, q.name, d.kind, width_bucket(d.seconds, bounds);
    end if;
    return query select null::text, null::text, null::text, null::int, greatest(reached, latencies.after), null::float8;
end $$;
