-- Plans again everything that a clock that was ahead has dated, once the clock is right. A row
-- whose time of writing lies more than a minute ahead of now was written by the wrong clock.
--     leases              last from now as long as they were given for: a live worker has time for
--                         its heartbeat, a dead one is noticed
--     schedules           are planned again from now on; until that is done the known instants are
--                         fired. Instants that were fired stay so
--     retries             come after their backoff, and delayed events after their delay. An event
--                         for an instant (`at`) keeps it: a delay is a number of milliseconds,
--                         which an instant is only by chance
--     looks               of upkeep, at states and at progress: are due
--     nodes, types without a handler, idempotency keys, checkpoints, dead letters: are dated now
--     statistics          of that time are deleted, but for the totals
-- The events themselves and their log keep their dates. Returns whether it was done: not if another
-- tick works on one of these.
-- Concurrency: never waits; skips locked rows, because the session that holds the lock writes the
-- row anew.
create or replace function headrace._replan_after_clock_change(t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    ahead constant timestamptz := t + interval '1 minute';
    queues constant int[] := array(select q.id from headrace.queues q);
begin
    if not (headrace._try_lock('counts') and headrace._try_lock('upkeep')
            and headrace._try_lock('unhandled') and headrace._try_lock('states')) then
        return false;
    end if;
    update headrace.leases l set until = t + (l.until - coalesce(l.extended_at, l.picked_at)), extended_at = t
    where l.id in (select o.id from headrace.leases o
                   where coalesce(o.extended_at, o.picked_at) > ahead for update skip locked);

    update headrace.scheduled_tasks s set
        planned_until = t, planned_at = t, updated_at = t,
        due_at = case when s.active then greatest((select min(f) from unnest(s.next_fires) f),
                                                  case when s.next_fires <> '{}' then t end) end
    where s.task_id in (
        select o.task_id from headrace.scheduled_tasks o
        where greatest(o.planned_at, o.updated_at) > ahead for update skip locked);

    -- delayed is insert-and-delete only
    with wrong as materialized (
        select d.ctid, coalesce(e.retry_at - e.at, d.due_at - d.created_at) as delay
        from headrace.delayed d
        left join headrace.errors e on e.at > ahead and e.event = d.event and e.queue = d.queue
            and e.retry_at = d.due_at
        where d.due_at > ahead
          and (e.event is not null
               or d.created_at > ahead and d.attempts = 0
               and mod(extract(microseconds from d.due_at - d.created_at)::bigint, 1000) = 0)
        for update of d skip locked
    ),
    gone as (
        delete from headrace.delayed d using wrong w where d.ctid = w.ctid returning d.*, w.delay
    )
    insert into headrace.delayed (event, created_at, due_at, route, queue, attempts, priority, failures, crashes,
                                  suspect, key)
    select event, created_at, t + delay, route, queue, attempts, priority, failures, crashes, suspect, key from gone;

    delete from headrace.upkeep u where u.next_at > t and u.task <> 'times';
    update headrace.saved_states s set next_at = t where s.next_at > t;
    update headrace.progress p set look_at = t
    where (p.queue, p.event) in (
        select o.queue, o.event from headrace.progress o
        where o.look_at > ahead + interval '1 hour' for update skip locked);
    update headrace.nodes n set last_heartbeat = t
    where (n.namespace, n.node_id) in (
        select o.namespace, o.node_id from headrace.nodes o where o.last_heartbeat > ahead for update skip locked);
    delete from headrace.unhandled u where greatest(u.since, u.seen_at) > ahead;
    update headrace.idempotency i set created_at = t
    where (i.namespace, i.key) in (
        select o.namespace, o.key from headrace.idempotency o where o.created_at > ahead for update skip locked);
    update headrace.queue_checkpoints c set created_at = t
    where c.id in (select o.id from headrace.queue_checkpoints o where o.created_at > ahead for update skip locked);
    update headrace.dead_letters x set died_at = t
    where (x.queue, x.event) in (
        select o.queue, o.event from headrace.dead_letters o where o.queue = any (queues)
            and o.died_at > ahead for update skip locked);
    delete from headrace.busy_ticks b where b.at > ahead;
    delete from headrace.samplings s where s.at > ahead;
    delete from headrace.history h where h.queue = any (queues) and h.at > ahead;
    delete from headrace.moments m where m.queue = any (queues) and m.at > ahead;
    delete from headrace.stats s where s.queue = any (queues) and s.minute > ahead;
    return true;
end $$;
