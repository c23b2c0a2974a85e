-- That a delivery is claimed alone, because a worker died while it had it: see why.
create or replace function headrace._why_suspect(q headrace.queues, s headrace.shown, suspect boolean)
returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select 'suspect',
           format('it is a suspect: its lease ended%s%s without a result. So it is claimed alone, by a worker that has '
                  'no other suspect', ' at ' || headrace._spoken_time(o.at), ' at worker ' || o.by),
           o.at, null::timestamptz, jsonb_strip_nulls(jsonb_build_object('worker', o.by))
    from (select null) one
    left join lateral (
        select o.at, o.by from headrace._delivery_trail(q, s.id) o
        where o.action = 'ABANDONED' order by o.id desc limit 1
    ) o on true
    where suspect
$$;
