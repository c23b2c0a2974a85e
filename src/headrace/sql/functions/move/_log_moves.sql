-- Logs an administrator's action on deliveries, with actor and reason: a row per claim that this
-- ended and bucket of 1,024 event ids, as _settle writes them. actor: as headrace._actor has proved
-- it; null: the caller's role. An attempt that was ended is counted.
create or replace function headrace._log_moves(
    q headrace.queues, t timestamptz, action text, taken headrace.taken[], actor text, reason text
) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
begin
    if length(_log_moves.actor) > 200 then
        raise exception using errcode = 'QU001', message = 'the name of an actor has at most 200 characters';
    end if;
    insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, actor, reason,
                                   events, attempts, positions)
    select nextval('headrace.ids'), headrace._log_time(headrace._log_time(t, g.created_at), g.picked_at), g.picked_at,
           g.bucket, g.lease, q.namespace, q.id, _log_moves.action, g.worker,
           coalesce(nullif(_log_moves.actor, ''), headrace._caller_role()), nullif(left(_log_moves.reason, 65536), ''),
           g.events, g.attempts, case when g.lease is not null then g.positions end
    from (
        select k.lease, k.picked_at, k.worker, headrace._bucket(k.event) as bucket, array_agg(k.event) as events,
               array_agg(k.attempt) as attempts, array_agg(k.position) as positions, max(k.created_at) as created_at
        from unnest(taken) k
        group by k.lease, k.picked_at, k.worker, headrace._bucket(k.event)
    ) g;
    insert into headrace.counts (at, namespace, queue, attempts)
    select t, q.namespace, q.id, count(*) from unnest(taken) k where k.lease is not null having count(*) > 0;
end $$;
