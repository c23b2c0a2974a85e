-- Which event of its ordering key a waiting delivery waits for: see why. Those before it are counted
-- to 1,000.
create or replace function headrace._why_key(q headrace.queues, s headrace.shown) returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    with line as (
        select a.event as active, h.status, h.worker_id, h.processing_started_at, h.next_retry_at, k.first, k.ahead
        from (
            select min(k.event) as first, count(*) as ahead
            from (select k.event from headrace.keyed k where k.queue = q.id and k.key = s.key and k.event < s.id
                  order by k.event limit 1000) k
        ) k
        left join headrace.active a on a.queue = q.id and a.key = s.key and a.event <> s.id
        left join lateral headrace._event_states(q, array[a.event]) h on true
    )
    select 'key_in_progress',
           format(case when l.next_retry_at is null then 'event %s of its ordering key %L is in progress since %s%s'
                       else 'event %s of its ordering key %L goes first, and waits for its retry at %s' end,
                  l.active, s.key, headrace._spoken_time(coalesce(l.next_retry_at, l.processing_started_at)),
                  ' at ' || nullif(l.worker_id, '')),
           l.processing_started_at, l.next_retry_at,
           jsonb_strip_nulls(jsonb_build_object(
               'key', s.key, 'event', l.active, 'retry_at', l.next_retry_at,
               'worker', case when l.next_retry_at is null then nullif(l.worker_id, '') end))
    from line l where l.active is not null and s.next_retry_at is null
    union all
    select 'key_turn',
           format('%s of its ordering key %L %s first, beginning with event %s',
                  case when l.ahead = 1000 then '1000 events or more' when l.ahead = 1 then 'an event'
                       else l.ahead || ' events' end, s.key, case when l.ahead = 1 then 'goes' else 'go' end, l.first),
           null, null, jsonb_build_object('key', s.key, 'event', l.first, 'ahead', l.ahead)
    from line l where l.ahead > 0 and s.next_retry_at is null
$$;
