-- Puts deliveries that were just taken out of a claim where they belong now, and writes the log: the one place
-- where retries, crashes and dead letters are decided. `others` as in finish; the other items have the action `usual`.
--     complete   gone
--     release    ready again, nothing charged; later, if it was asked for by `others` and is not the first in a row: see release_delays
--     fail       one failure more: delayed by the policy (event's, then handler's, then queue's), or dead
--     abandon    the lease ran out, or the handler's connection was lost. Nobody knows what else the worker was at, so the first time charges nobody, it only
--                makes a suspect. A suspect is claimed alone, and one at a time by a worker: it is charged a crash. Who ends a
--                lease does not know the handler: its policy is the one that the last failure was judged by
-- The last entry of the log before DEAD_LETTERED is the status: FAILED, or COMPLETED_WITH_ERRORS if `others` says so.
-- token: of the lease that ran out, which has been deleted; the log keeps it for a late finish: see take_late.
-- Dead: failures + crashes >= max(1, max_retries), and only a charge can kill; or its event is stored nowhere any more.
create or replace function headrace.settle(
    q headrace.queues, t timestamptz, usual text, taken headrace.taken[], ms int[], codes int[], others jsonb, token uuid default null
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
    delays int[];   -- seconds, of what is released, by item; null: none
begin
    -- An attempt that no charge accounts for was released, or made a suspect: only then there is a row of releases to look for.
    if others is not null and exists (
        select from unnest(taken) k
        where others -> k.item::text ->> 'action' = 'release' and k.attempt - k.failures - k.crashes > 1)
    then
        delays := headrace.release_delays(q, t, taken, others);
    end if;
    -- Above READ COMMITTED an old snapshot may see neither the month that was retired nor what was carried over of it.
    if current_setting('transaction_isolation') <> 'read committed' and exists (
        select from unnest(taken) k
        where coalesce(others -> k.item::text ->> 'action', usual) <> 'complete'
          and not exists (select from headrace.body(k.event, k.created_at)))
    then
        raise exception using errcode = '40001', message = 'the event has been moved since this transaction began';
    end if;
    return query
    with item as materialized (
        select k.*, o.other, coalesce(o.other ->> 'action', usual) as action
        from unnest(taken) k cross join lateral (select others -> k.item::text as other) o
    ),
    charged as materialized (
        select i.item, i.event, i.attempt, i.created_at, i.lease, i.position, i.picked_at, i.worker, i.key, i.other, i.action,
               b.type, b.tags, b.payload, b.details, b.route, b.priority, b.max_retries as own_max_retries,
               (i.failures + (i.action = 'fail')::int)::smallint as failures,
               (i.crashes + (i.action = 'abandon' and i.suspect)::int)::smallint as crashes,
               i.suspect or i.action = 'abandon' as suspect,
               i.action = 'fail' or i.action = 'abandon' and i.suspect as charged,
               coalesce(b.max_retries, (i.other ->> 'max_retries')::smallint, l.max_retries, q.max_retries) as max_retries
        from item i
        left join lateral (select * from headrace.body(i.event, i.created_at) where i.action <> 'complete') b on true
        cross join lateral (
            select case when i.action = 'abandon' and i.suspect and i.failures > 0
                        then headrace.last_policy(i.event, q.id, i.created_at) end as max_retries
        ) l
    ),
    ended as materialized (
        select c.*,
               case c.action
                   when 'complete' then 'COMPLETED'
                   when 'release' then 'RELEASED'
                   when 'abandon' then 'ABANDONED'
                   else case when d.dead then coalesce(c.other ->> 'status', 'FAILED') else 'FAILED' end
               end as logged,
               d.dead, headrace.not_before(t, c.picked_at) as at, coalesce(c.other ->> 'status', 'FAILED') as status,
               case when d.dead then null
                    when c.action = 'fail' then t + coalesce(
                        make_interval(secs => (c.other ->> 'retry_in')::float8),
                        headrace.backoff(coalesce(c.details -> 'backoff', c.other -> 'backoff', q.backoff), c.failures))
                    when c.action = 'release' then t + make_interval(secs => coalesce(delays[c.item], 0))
                    when c.action = 'abandon' then t
               end as due_at
        from charged c
        cross join lateral (
            select c.action <> 'complete' and c.type is null
                or c.charged and (c.other ? 'reason' or c.failures + c.crashes >= greatest(1, c.max_retries)) is true as dead
        ) d
    ),
    outcome as (
        insert into headrace.outcomes (id, at, picked_at, bucket, lease, namespace, queue, action, worker, events, attempts, positions, ms, codes, token)
        select nextval('headrace.ids'), headrace.not_before(t, g.picked_at), g.picked_at, g.bucket, g.lease, q.namespace, q.id, g.logged, g.worker,
               g.events, g.attempts, g.positions, g.ms, g.codes,
               case when g.logged = 'ABANDONED' then coalesce(settle.token, (select l.token from headrace.leases l where l.id = g.lease)) end
        from (
            select e.lease, e.picked_at, e.worker, e.logged, e.event >> 10 as bucket, array_agg(e.event) as events,
                   array_agg(e.attempt) as attempts, array_agg(e.position) as positions,
                   nullif(array_agg(settle.ms[e.item]), array_agg(null::int)) as ms,
                   nullif(array_agg(settle.codes[e.item]), array_agg(null::int)) as codes
            from ended e
            group by e.lease, e.picked_at, e.worker, e.logged, e.event >> 10
        ) g
        returning id, lease, action, bucket
    ),
    failed as (
        insert into headrace.errors (outcome, event, at, queue, attempt, failures, max_retries, retry_at, error)
        select o.id, e.event, e.at, q.id, e.attempt, e.failures, e.max_retries, e.due_at, left(coalesce(e.other ->> 'error', ''), 65536)
        from ended e
        join outcome o on o.lease is not distinct from e.lease and o.action = e.logged and o.bucket = e.event >> 10
        where e.action = 'fail'
    ),
    saved as (
        insert into headrace.progress as p (queue, event, attempt, value, saved_at, look_at)
        select q.id, e.event, e.attempt, e.other -> 'progress', t, t + interval '1 hour'
        from ended e where e.action <> 'complete' and e.other ? 'progress'
        order by e.event
        on conflict on constraint progress_pkey do update
        set attempt = case when p.value = excluded.value then p.attempt else excluded.attempt end, value = excluded.value, saved_at = excluded.saved_at, look_at = excluded.look_at
    ),
    put_off as (
        insert into headrace.delayed (event, created_at, due_at, route, queue, attempts, priority, failures, crashes, suspect, key)
        select e.event, e.created_at, e.due_at, e.route, q.id, e.attempt, e.priority, e.failures, e.crashes, e.suspect, e.key
        from ended e where e.due_at > t
    ),
    again as (
        insert into headrace.ready (event, created_at, route, seq, queue, attempts, priority, failures, crashes, suspect, ready_at)
        select e.event, e.created_at, e.route, nextval('headrace.ids'), q.id, e.attempt, e.priority, e.failures, e.crashes, e.suspect, e.at
        from (select * from ended where due_at <= t and key is null order by item) e
    ),
    ordered as (
        insert into headrace.keyed (queue, key, event, created_at, route, attempts, priority, failures, crashes, suspect)
        select q.id, e.key, e.event, e.created_at, e.route, e.attempt, e.priority, e.failures, e.crashes, e.suspect
        from ended e where e.due_at <= t and e.key is not null
    ),
    dead as materialized (
        select e.*, left(e.other ->> 'error', 65536) as error,
               case when e.type is null then 'Its event is no longer stored'
                    else coalesce(e.other ->> 'reason', e.other ->> 'last_reason', case when e.action = 'fail' then 'Max retries exceeded'
                                                             else 'Its workers crashed or lost their leases' end) end as reason
        from ended e where e.dead
    ),
    buried as (
        insert into headrace.dead_letters (event, queue, namespace, created_at, died_at, status, reason, error, fingerprint, attempts,
            failures, crashes, route, priority, max_retries, type, tags, payload, details, key)
        select e.event, q.id, q.namespace, e.created_at, e.at, e.status,
               e.reason, e.error, headrace.fingerprint(e.reason, e.error),
               e.attempt, e.failures, e.crashes, coalesce(e.route, 0),
               coalesce(e.priority, 5::smallint), e.own_max_retries, coalesce(e.type, 'event'), e.tags,
               coalesce(e.payload, 'null'), e.details, e.key
        from dead e
    ),
    buried_log as (
        insert into headrace.outcomes (id, at, bucket, namespace, queue, action, worker, reason, events, attempts)
        select nextval('headrace.ids'), e.at, e.event >> 10, q.namespace, q.id, e.entry, e.worker, e.why, array[e.event], array[e.attempt]
        from (
            select d.*, l.entry, l.why
            from dead d
            join outcome o on o.lease is not distinct from d.lease and o.action = d.logged and o.bucket = d.event >> 10
            -- An attempt that was abandoned does not say how its delivery ended: that has an entry of its own.
            cross join lateral (values (1, d.status, d.reason), (2, 'DEAD_LETTERED', null)) l(place, entry, why)
            where l.entry <> d.logged
            order by d.item, l.place
        ) e
    ),
    counted as (
        insert into headrace.counts (at, namespace, queue, completed, failed, retried, abandoned, dead, attempts, timed, ms)
        select t, q.namespace, q.id, count(*) filter (where e.action = 'complete'), count(*) filter (where e.action = 'fail'),
               count(*) filter (where e.action in ('fail', 'abandon') and not e.dead),
               count(*) filter (where e.action = 'abandon'), count(*) filter (where e.dead), count(*),
               count(settle.ms[e.item]), coalesce(sum(settle.ms[e.item]), 0)
        from ended e
    )
    select e.item, 'counted'::text, e.logged, e.at, case when e.action = 'fail' then e.due_at end,
           case when e.action = 'fail' then e.failures end, case when e.action = 'fail' then e.max_retries end
    from ended e where e.action <> 'complete'
    order by e.item;
    if found then
        perform headrace.wake(q.id);
    end if;
    if exists (select from unnest(taken) k where k.key is not null) then
        -- what waits for its retry keeps its key
        perform headrace.pass_on(q, headrace.not_before(t, (select max(k.picked_at) from unnest(taken) k)), array(
            select k from unnest(taken) k where not exists (select from headrace.delayed d where d.event = k.event and d.queue = q.id)));
    end if;
end $$;
