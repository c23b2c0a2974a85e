-- Until when a delivery is delayed, and why: see why. The last entry of its log tells a retry from a
-- snooze, a release and a redrive at a rate; without one it was published so.
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
               when 'snoozed' then 'its handler snoozed it: it is ready again at '
                                   || headrace._spoken_time(s.next_retry_at)
               when 'released' then 'it was handed back unfinished, and is ready again at '
                                    || headrace._spoken_time(s.next_retry_at)
               else case when o.action = 'REDRIVEN' then 'it was redriven at a rate, and is delayed until '
                         else 'it is delayed until ' end || headrace._spoken_time(s.next_retry_at)
           end || case when s.next_retry_at > t then ''
                       else '. That time is over: the next tick makes it ready' || headrace._ticks_stopped() end,
           coalesce(o.at, s.created_at), s.next_retry_at,
           jsonb_strip_nulls(case k.code when 'retry' then jsonb_build_object(
               'failures', s.retry_count, 'max_retries', s.max_retries, 'error', x.error) else '{}' end)
    from (select null) one
    left join lateral (
        select o.action, o.at, o.error from headrace._delivery_trail(q, s.id) o
        where o.action <> 'STARTED' order by o.id desc limit 1
    ) o on true
    cross join lateral (
        select case when o.action in ('FAILED', 'COMPLETED_WITH_ERRORS') then 'retry'
                    when o.action = 'SNOOZED' then 'snoozed'
                    when o.action = 'RELEASED' then 'released' else 'delayed' end as code
    ) k
    cross join lateral (select nullif(headrace._error_line(null, o.error), '') as error) x
    where s.next_retry_at is not null
$$;
