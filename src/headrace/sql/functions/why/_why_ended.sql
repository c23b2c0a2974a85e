-- How a delivery has ended: see why.
create or replace function headrace._why_ended(q headrace.queues, s headrace.shown) returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select 'ended',
           case when x.event is not null
                then format('it is a dead letter since %s: %s', headrace._spoken_time(x.died_at), e.error)
                when s.superseded_by is not null
                then format('event %s of its debounce key took its place', s.superseded_by)
                else format('it has ended as %s at %s%s%s', s.status, headrace._spoken_time(s.updated_at),
                            ', by ' || o.by, ': ' || o.reason) end,
           coalesce(x.died_at, s.updated_at), null::timestamptz,
           jsonb_strip_nulls(jsonb_build_object(
               'status', s.status, 'at', coalesce(x.died_at, s.updated_at), 'by', o.by,
               'reason', coalesce(x.reason, o.reason), 'error', e.error,
               'superseded_by', s.superseded_by))
    from (select null) one
    left join headrace.dead_letters x on x.event = s.id and x.queue = q.id
    cross join lateral (
        select case when x.event is not null then headrace._error_line(x.reason, x.error) end as error
    ) e
    left join lateral (
        select o.by, o.reason from headrace._delivery_trail(q, s.id) o
        where o.ends_claim or o.action = 'CANCELLED' order by o.id desc limit 1
    ) o on true
$$;
