-- Which event of its ordering key a waiting delivery waits for: see why. Those before it are counted
-- to 1,000. A delivery that is delayed is not in its key's line yet.
create or replace function headrace._why_key(q headrace.queues, s headrace.shown) returns setof headrace.reason
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    active bigint;
begin
    if s.key is null or s.next_retry_at is not null then
        return;
    end if;
    select a.event into active from headrace.active a where a.queue = q.id and a.key = s.key and a.event <> s.id;
    if found then
        return query
        select 'key_in_progress',
               format('event %s of its ordering key %L %s', active, s.key,
                      case when h.next_retry_at is null
                           then 'is in progress since ' || headrace._spoken_time(h.processing_started_at)
                                || coalesce(' at ' || w.worker, '')
                           else 'goes first, and waits until ' || headrace._spoken_time(h.next_retry_at) end),
               h.processing_started_at, h.next_retry_at,
               jsonb_strip_nulls(jsonb_build_object('key', s.key, 'event', active, 'worker', w.worker,
                                                    'retry_at', h.next_retry_at))
        from headrace._event_states(q, array[active]) h
        cross join lateral (select case when h.next_retry_at is null then nullif(h.worker_id, '') end as worker) w;
    end if;
    return query
    select 'key_turn',
           format('%s of its ordering key %L %s first, beginning with event %s',
                  case k.ahead when 1000 then '1000 events or more' when 1 then 'an event'
                               else k.ahead || ' events' end,
                  s.key, case k.ahead when 1 then 'goes' else 'go' end, k.first),
           null::timestamptz, null::timestamptz,
           jsonb_build_object('key', s.key, 'event', k.first, 'ahead', k.ahead)
    from (
        select min(o.event) as first, count(*) as ahead
        from (select o.event from headrace.keyed o where o.queue = q.id and o.key = s.key and o.event < s.id
              order by o.event limit 1000) o
    ) k
    where k.ahead > 0;
end $$;
