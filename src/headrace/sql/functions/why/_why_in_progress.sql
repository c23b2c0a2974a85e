-- Which worker has a delivery, or had it when its lease ended: see why.
create or replace function headrace._why_in_progress(q headrace.queues, s headrace.shown, t timestamptz)
returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select case when s.lease_expires_at > t then 'in_progress' else 'lease_expired' end,
           case when s.lease_expires_at > t
                then format('attempt %s is in progress at %s since %s; its lease lasts until %s, and is extended while '
                            'the worker lives', s.attempts, w.name, headrace._spoken_time(s.processing_started_at),
                            headrace._spoken_time(s.lease_expires_at))
                else format('attempt %s was in progress at %s when its lease ended at %s; the next tick hands it out '
                            'again%s', s.attempts, w.name, headrace._spoken_time(s.lease_expires_at), u.stopped) end,
           case when s.lease_expires_at > t then s.processing_started_at else s.lease_expires_at end,
           case when s.lease_expires_at > t then s.lease_expires_at end,
           jsonb_strip_nulls(jsonb_build_object('worker', nullif(s.worker_id, ''), 'node', n.node_id,
                                                'attempt', s.attempts))
    from (select null) one
    left join lateral (
        select o.node_id from headrace.nodes o
        where o.namespace = q.namespace and o.worker = s.worker_id and s.worker_id <> ''
        order by o.last_heartbeat desc limit 1
    ) n on true
    cross join lateral (select coalesce('node ' || n.node_id || ' (' || s.worker_id || ')', nullif(s.worker_id, ''),
                                        'a worker without a name') as name) w
    cross join lateral (
        select case when s.lease_expires_at < t - interval '1 minute' then headrace._ticks_stopped() else '' end
            as stopped
    ) u
$$;
