-- That no live node handles the type of a delivery, and which did last: see why. By types alone: a
-- node that handles a type only with certain tags, or in another queue, counts. Where workers that
-- are not nodes are active, they may handle it: see _has_other_workers.
create or replace function headrace._why_unhandled(q headrace.queues, s headrace.shown, t timestamptz)
returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select 'unhandled',
           format('no live node handles the type %L%s', s.type,
                  coalesce(': node ' || l.node_id || ' did last, until ' || headrace._spoken_time(l.at),
                           ', and none has in the last month')),
           l.at, null::timestamptz,
           jsonb_strip_nulls(jsonb_build_object('type', s.type, 'node', l.node_id, 'handled_until', l.at))
    from (select headrace._alive_nodes(t) as living) a
    left join lateral (
        select o.node_id, coalesce(o.stopped_at, o.last_heartbeat) as at
        from headrace.nodes o
        where o.namespace = q.namespace
          and exists (select from unnest(o.handles) h where s.type like headrace._like_pattern(h))
        order by 2 desc limit 1
    ) l on true
    where not exists (
              select from headrace.nodes o cross join lateral unnest(o.handles) h
              where o.namespace = q.namespace and o.instance = any (a.living)
                and s.type like headrace._like_pattern(h))
      and not headrace._has_other_workers(q, t, a.living)
$$;
