-- The verdicts of finish on items that the caller could not end: the log's entry on that very
-- attempt. This may be all that the call does: see _confirm_stored. workers: the expected workers
-- of the attempts, along events; null: any.
create or replace function headrace._past_verdicts(
    q headrace.queues, taken headrace.taken[], events bigint[], attempts int[], others jsonb,
    workers text[] default null
) returns setof headrace.verdict
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    since constant timestamptz := headrace._earliest_time_of(events);
begin
    perform headrace._confirm_stored();
    return query
    select distinct on (i.item) i.item::int,
           case when o.action is null or o.action in ('RESET', 'CANCELLED')
                     or o.action = 'ABANDONED' and others -> i.item::text ->> 'action' is distinct from 'abandon'
                         then 'lost'
                when o.action = any (case coalesce(others -> i.item::text ->> 'action', 'complete')
                                         when 'complete' then '{COMPLETED}'::text[]
                                         when 'release' then '{RELEASED}'
                                         when 'abandon' then '{ABANDONED}'
                                         else '{FAILED,COMPLETED_WITH_ERRORS}' end) then 'repeated'
                else 'conflict' end,
           o.action, o.at, o.retry_at, o.failures, o.max_retries
    from unnest(events, attempts) with ordinality as i(event, attempt, item)
    left join lateral (
        select o.id, o.action, o.at, e.retry_at, e.failures, e.max_retries
        from headrace.outcomes o
        left join headrace.errors e on e.event = i.event and e.queue = q.id and e.outcome = o.id and e.at = o.at
            and (since = '-infinity' or e.at >= since)
        where o.bucket = headrace._bucket(i.event) and o.queue = q.id and o.picked_at is not null
          and (since = '-infinity' or o.at >= since)
          and o.attempts[array_position(o.events, i.event)] = i.attempt
          and (workers[i.item] is null or o.worker = workers[i.item])
        -- There is one, or two: an abandonment and the late finish that took it back. No limit:
        -- with it, old statistics would have the whole month read for one row.
    ) o on true
    where i.item not in (select k.item from unnest(taken) k)
    order by i.item, o.id desc;
end $$;
