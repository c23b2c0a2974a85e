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
set enable_seqscan = off
set enable_sort = off
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now() - interval '2 seconds';
    reached bigint;
begin
    if coalesce(cardinality(bounds), 0) = 0 or most is null or most not between 1 and 100000 then
        raise exception using errcode = 'QU001', message = 'latencies needs the bounds of its buckets, and looks at 1 to 100000 attempts';
    end if;
    reached := coalesce((select o.id from headrace.outcomes o where o.at between t - interval '1 hour' and t order by o.id desc limit 1), 0);
    if latencies.after is not null then
        return query
        with newest as materialized (
            select o.queue, o.picked_at, o.at, o.action, o.events, o.attempts, o.ms, cardinality(o.events) as size
            from headrace.outcomes o
            where o.id > latencies.after and o.id <= reached and o.at between t - interval '1 hour' and t
              and o.picked_at is not null
            order by o.id desc limit most
        ),
        member as materialized (
            select n.queue, n.picked_at, n.action, n.attempts[m.n] as attempt, n.events[m.n] as event,
                   coalesce(n.ms[m.n] / 1000.0::float8, extract(epoch from n.at - n.picked_at)::float8) as ran
            from newest n
            cross join (select greatest(1, most / greatest(count(*), 1)) as each from newest) s
            cross join lateral (
                select distinct 1 + g * n.size / least(s.each, n.size) as n from generate_series(0, least(s.each, n.size) - 1) g
            ) m
        ),
        measured as (
            select m.queue, 'run' as kind, m.ran as seconds from member m
            where m.action in ('COMPLETED', 'COMPLETED_WITH_ERRORS', 'FAILED')
            union all
            select m.queue, 'wait', extract(epoch from m.picked_at - e.created_at)::float8
            from member m
            cross join lateral (select e.created_at from headrace.events e where e.id = m.event limit 1) e
            where m.attempt = 1
        )
        select q.space, q.name, d.kind, width_bucket(greatest(d.seconds, 0), bounds), count(*), sum(greatest(d.seconds, 0))
        from measured d join headrace.queues q on q.id = d.queue
        where q.space is not null
        group by q.space, q.name, d.kind, width_bucket(greatest(d.seconds, 0), bounds);
    end if;
    return query select null::text, null::text, null::text, null::int, greatest(reached, latencies.after), null::float8;
end $$;
