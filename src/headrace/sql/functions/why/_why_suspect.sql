-- That a delivery is claimed alone, because a worker died while it had it: see why.
create or replace function headrace._why_suspect(q headrace.queues, s headrace.shown, suspect boolean)
returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select 'suspect',
           format('it is a suspect: its lease ended%s%s without a result. So it is claimed alone, by a worker that has '
                  'no other suspect', ' at ' || headrace._spoken_time(o.at), ' at worker ' || nullif(o.worker, '')),
           o.at, null::timestamptz, jsonb_strip_nulls(jsonb_build_object('worker', nullif(o.worker, '')))
    from (select headrace._earliest_time_of(array[s.id]) as since) m
    left join lateral (
        select o.at, o.worker from headrace.outcomes o
        where o.bucket = s.id >> 10 and o.queue = q.id and s.id = any (o.events) and o.action = 'ABANDONED'
          and (m.since = '-infinity' or o.at >= m.since)
        order by o.id + 0 desc limit 1
    ) o on true
    where suspect
$$;
