-- That a queue hands out nothing, or takes nothing new: see why. By whom: the last entry of the log
-- of administration, among its last thousand.
create or replace function headrace._why_paused(q headrace.queues) returns setof headrace.reason
language sql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
    select 'queue_' || q.state,
           format(case q.state when 'paused' then 'the queue %s is paused%s%s'
                               else 'the queue %s is draining%s%s: it hands out what it has, and is paused then' end,
                  q.name, ' since ' || headrace._spoken_time(l.at), ' by ' || l.actor),
           l.at, null::timestamptz, jsonb_strip_nulls(jsonb_build_object('actor', l.actor))
    from headrace._last_state_change(q.namespace, q.name) l
    where q.state in ('paused', 'draining')
$$;
