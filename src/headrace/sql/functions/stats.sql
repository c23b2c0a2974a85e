-- How a queue is doing: what stands where now, and what happened in the last `period`, to the minute.
-- Raises QU010, QU011.
create or replace function headrace.stats(namespace text, queue text default 'main', period interval default '5 minutes')
returns table (ready bigint, delayed bigint, processing bigint, dead_letters bigint, oldest_ready_at timestamptz,
               published bigint, completed bigint, failed bigint, abandoned bigint, dead_lettered bigint,
               attempts bigint, average_ms float8)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    q headrace.queues;
    since timestamptz := date_trunc('minute', headrace.now() - period);  -- stats are kept by the minute
begin
    select * into q from headrace.queues where queues.space = stats.namespace and queues.name = stats.queue;
    if not found then
        perform headrace.no_such_queue(stats.namespace, stats.queue);
    end if;
    return query
    select count(d.event) filter (where d.lease is null and d.due_at is null),
           count(d.event) filter (where d.due_at is not null),
           count(d.event) filter (where d.lease is not null),
           (select count(*) from headrace.dead_letters x where x.queue = q.id),
           min(d.created_at) filter (where d.lease is null and d.due_at is null),
           c.published, c.completed, c.failed, c.abandoned, c.dead, c.attempts, c.ms / nullif(c.timed, 0)::float8
    from (
        select coalesce(sum(f.published), 0)::bigint as published, coalesce(sum(f.completed), 0)::bigint as completed,
               coalesce(sum(f.failed), 0)::bigint as failed, coalesce(sum(f.abandoned), 0)::bigint as abandoned,
               coalesce(sum(f.dead), 0)::bigint as dead, coalesce(sum(f.attempts), 0)::bigint as attempts, coalesce(sum(f.timed), 0) as timed,
               coalesce(sum(f.ms), 0) as ms
        from (
            select s.published, s.completed, s.failed, s.abandoned, s.dead, s.attempts, s.timed, s.ms
            from headrace.stats s where s.queue = q.id and s.minute >= since
            union all
            select n.published, n.completed, n.failed, n.abandoned, n.dead, n.attempts, n.timed, n.ms
            from headrace.counts n where n.queue = q.id and n.at >= since
        ) f
    ) c
    left join headrace.deliveries d on d.queue = q.id
    group by c.published, c.completed, c.failed, c.abandoned, c.dead, c.attempts, c.timed, c.ms;
end $$;
