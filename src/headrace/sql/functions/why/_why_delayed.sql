-- Until when a delivery is delayed, and why: see why. The last entry of its log tells a retry from a
-- release; without one it was published so.
create or replace function headrace._why_delayed(q headrace.queues, s headrace.shown, t timestamptz)
returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select k.code,
           case k.code
               when 'retry' then format('it has failed %s of %s times, and is retried at %s. The last error: %s',
                                        s.retry_count, greatest(1, s.max_retries),
                                        headrace._spoken_time(s.next_retry_at), coalesce(x.error, 'none was given'))
               when 'released' then 'it was handed back unfinished, and is ready again at '
                                    || headrace._spoken_time(s.next_retry_at)
               else 'it is delayed until ' || headrace._spoken_time(s.next_retry_at)
           end || case when s.next_retry_at > t then ''
                       else '. That time is over: the next tick makes it ready' || headrace._ticks_stopped() end,
           coalesce(o.at, s.created_at), s.next_retry_at,
           jsonb_strip_nulls(case k.code when 'retry' then jsonb_build_object(
               'failures', s.retry_count, 'max_retries', s.max_retries, 'error', x.error) else '{}' end)
    from (select headrace._earliest_time_of(array[s.id]) as since) m
    left join lateral (
        select o.action, o.at, o.id from headrace.outcomes o
        where o.bucket = s.id >> 10 and o.queue = q.id and s.id = any (o.events) and o.action <> 'STARTED'
          and (m.since = '-infinity' or o.at >= m.since)
        order by o.id + 0 desc limit 1
    ) o on true
    cross join lateral (
        select case when o.action in ('FAILED', 'COMPLETED_WITH_ERRORS') then 'retry'
                    when o.action is not null then 'released' else 'delayed' end as code
    ) k
    left join lateral (
        select headrace._error_line(null, r.error) as error from headrace.errors r
        where r.event = s.id and r.queue = q.id and r.outcome = o.id and (m.since = '-infinity' or r.at >= m.since)
    ) x on true
    where s.next_retry_at is not null
$$;
