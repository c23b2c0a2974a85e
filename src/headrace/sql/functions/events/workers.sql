-- The workers of a queue, which need no registration: every worker that has a claim, or has ended
-- an attempt in the last `period`. For each: its claims and when they expire, when it was last seen
-- (a heartbeat leaves no trace), and its results since `since`. The function reads the last 20,000
-- rows of outcomes at most, so in a busy queue `since` is later than the period asked for.
-- Raises QU001, QU010, QU011.
create or replace function headrace.workers(
    namespace text, queue text default 'main', period interval default '5 minutes'
) returns table (worker_id text, holds bigint, oldest_claim_at timestamptz, lease_expires_at timestamptz,
               last_seen_at timestamptz,
               completed bigint, failed bigint, released bigint, abandoned bigint, since timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_sort = off           -- the newest outcomes by their key, not all of them sorted
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    q headrace.queues := headrace._queue_named(workers.namespace, workers.queue);
    begin_at timestamptz := headrace._now() - period;
begin
    if period is null then
        raise exception using errcode = 'QU001', message = 'period is a length of time';
    end if;
    return query
    with recent as materialized (
        select o.at, o.queue, o.worker, o.action, o.picked_at, cardinality(o.events) as size
        from headrace.outcomes o where o.at between begin_at and begin_at + period + interval '1 minute'
        order by o.id desc limit 20000
    ),
    reach as (
        select case when count(*) < 20000 then begin_at else min(r.at) end as since from recent r
    ),
    did as (
        select r.worker, max(r.at) filter (where r.action <> 'ABANDONED') as at,
               coalesce(sum(r.size) filter (where r.action = 'COMPLETED'), 0) as completed,
               coalesce(sum(r.size) filter (where r.action in ('FAILED', 'COMPLETED_WITH_ERRORS')), 0) as failed,
               coalesce(sum(r.size) filter (where r.action in ('RELEASED', 'SNOOZED')), 0) as released,
               coalesce(sum(r.size) filter (where r.action = 'ABANDONED'), 0) as abandoned
        from recent r where r.queue = q.id and r.picked_at is not null
        group by r.worker
    ),
    claim as (
        select l.worker, l.picked_at, l.until,
               case when l.events is not null then l.size - coalesce(bit_count(l.done), 0)
                    else (select count(*) from headrace.held h where h.lease = l.id) end as size
        from headrace.leases l where l.queue = q.id
    ),
    has as (
        select c.worker, sum(c.size) as size, min(c.picked_at) as oldest, min(c.until) as until,
               max(c.picked_at) as newest
        from claim c where c.size > 0 group by c.worker
    )
    select coalesce(h.worker, d.worker), coalesce(h.size, 0)::bigint, h.oldest, h.until, greatest(h.newest, d.at),
           coalesce(d.completed, 0)::bigint, coalesce(d.failed, 0)::bigint, coalesce(d.released, 0)::bigint,
           coalesce(d.abandoned, 0)::bigint,
           (select r.since from reach r)
    from has h full join did d on d.worker = h.worker
    order by 1;
end $$;
