-- Moves deliveries that were just taken out of a claim to their new places, and writes the log.
-- _decided_ends decides about retries, crashes and dead letters. `others` as in finish; the other
-- items have the action `usual`.
--     complete   gone
--     release    ready again, nothing charged; later, if `others` asked for it and it is not the
--                first in a row: see _release_delays
--     fail       one failure more: delayed by the policy (event's, then handler's, then queue's),
--                or dead
--     abandon    the lease expired, or the handler's connection was lost. The cause may be another
--                delivery of the worker, so the first time charges none, it only makes a suspect. A
--                suspect is claimed alone, and one at a time by a worker: it is charged a crash.
--                The session that ends a lease does not know the handler: it applies the policy of
--                the last failure
-- The last entry of the log before DEAD_LETTERED is the status: FAILED, or COMPLETED_WITH_ERRORS if
-- `others` says so.
-- token: of the lease that expired, which has been deleted; the log keeps it for a late finish: see
-- _take_late. Dead: failures + crashes >= max(1, max_retries), and only a charge can kill; or its
-- event is stored nowhere any more.
create or replace function headrace._settle(
    q headrace.queues, t timestamptz, usual text, taken headrace.taken[], ms int[], codes int[], others jsonb,
    token uuid default null
) returns setof headrace.verdict
language plpgsql
set search_path = pg_catalog, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    delays int[];   -- seconds, of released deliveries, by item; null: none
    verdicts headrace.verdict[]; dead int[];
begin
    -- Only an attempt that no charge accounts for was released before, or made a suspect.
    if others is not null and exists (
        select from unnest(taken) k
        where others -> k.item::text ->> 'action' = 'release' and k.attempt - k.failures - k.crashes > 1) then
        delays := headrace._release_delays(q, t, taken, others);
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        perform headrace._raise_if_moved(usual, taken, others);
    end if;
    with ended as materialized (
        select item, event, attempt, created_at, lease, position, picked_at, worker, key, other, action, route,
               priority, failures, crashes, suspect, max_retries, dead, at, logged, due_at
        from headrace._decided_ends(q, t, usual, taken, others, delays)
    ),
    outcome as (
        insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events,
                                       attempts, positions, ms, codes, token)
        select nextval('headrace.ids'), headrace._log_time(t, g.picked_at), g.picked_at, g.bucket, g.lease, q.namespace,
               q.id, g.logged, g.worker, g.events, g.attempts, g.positions, g.ms, g.codes,
               case when g.logged = 'ABANDONED'
                    then coalesce(_settle.token, (select l.token from headrace.leases l where l.id = g.lease)) end
        from (
            select e.lease, e.picked_at, e.worker, e.logged, headrace._bucket(e.event) as bucket,
                   array_agg(e.event) as events,
                   array_agg(e.attempt) as attempts, array_agg(e.position) as positions,
                   nullif(array_agg(_settle.ms[e.item]), array_agg(null::int)) as ms,
                   nullif(array_agg(_settle.codes[e.item]), array_agg(null::int)) as codes
            from ended e group by e.lease, e.picked_at, e.worker, e.logged, headrace._bucket(e.event)
        ) g
        returning id, lease, action, bucket
    ),
    failed as (
        insert into headrace.errors (outcome, event, at, queue, attempt, failures, max_retries, retry_at, error)
        select o.id, e.event, e.at, q.id, e.attempt, e.failures, e.max_retries, e.due_at,
               left(coalesce(e.other ->> 'error', ''), 65536)
        from ended e join outcome o
            on o.lease is not distinct from e.lease and o.action = e.logged and o.bucket = headrace._bucket(e.event)
        where e.action = 'fail'
    ),
    put_off as (
        insert into headrace.delayed (event, created_at, due_at, route, queue, attempts, priority, failures, crashes,
                                      suspect, key)
        select event, created_at, due_at, route, q.id, attempt, priority, failures, crashes, suspect, key
        from ended where due_at > t
    ),
    again as (
        insert into headrace.ready (event, created_at, route, seq, queue, attempts, priority, failures, crashes,
                                    suspect, ready_at)
        select event, created_at, route, nextval('headrace.ids'), q.id, attempt, priority, failures, crashes, suspect,
               at from (select * from ended where due_at <= t and key is null order by item) e
    ),
    ordered as (
        insert into headrace.keyed (queue, key, event, created_at, route, attempts, priority, failures,
                                    crashes, suspect)
        select q.id, key, event, created_at, route, attempt, priority, failures, crashes, suspect
        from ended where due_at <= t and key is not null
    ),
    counted as (
        insert into headrace.counts (at, namespace, queue, completed, failed, retried, abandoned, dead,
                                     attempts, timed, ms)
        select t, q.namespace, q.id, count(*) filter (where e.action = 'complete'),
               count(*) filter (where e.action = 'fail'),
               count(*) filter (where e.action in ('fail', 'abandon') and not e.dead),
               count(*) filter (where e.action = 'abandon'), count(*) filter (where e.dead), count(*),
               count(_settle.ms[e.item]), coalesce(sum(_settle.ms[e.item]), 0) from ended e
    )
    select array_agg(row(e.item, 'counted', e.logged, e.at, case when e.action = 'fail' then e.due_at end,
                         case when e.action = 'fail' then e.failures end,
                         case when e.action = 'fail' then e.max_retries end)::headrace.verdict order by e.item)
               filter (where e.action <> 'complete'),
           array_agg(e.item) filter (where e.dead)
    into verdicts, dead from ended e;
    if others @? '$.*.progress' then
        perform headrace._store_results_progress(q, t, usual, taken, others);
    end if;
    if dead is not null then
        perform headrace._dead_letter(q, t, usual, taken, others, dead);
    end if;
    if verdicts is not null then
        perform headrace._wake(q.id);
        return query select * from unnest(verdicts);
    end if;
    if exists (select from unnest(taken) k where k.key is not null) then
        perform headrace._release_ended_keys(q, t, taken);
    end if;
end $$;
