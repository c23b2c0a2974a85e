-- The checkpoints of a queue, the newest first: those that a caller asked for, and those that tick
-- took. All checkpoints of the last day are retained, and one an hour of the month before. before:
-- only checkpoints before this time.
-- Raises QU001, QU010, QU011.
create or replace function headrace.checkpoints(
    namespace text, queue text default 'main', "limit" int default 100, before timestamptz default null
) returns table (id uuid, queue_id text, checkpoint_id text, event_count bigint, created_at timestamptz)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    q constant headrace.queues := headrace._queue_named(checkpoints.namespace, checkpoints.queue);
begin
    if "limit" is null or "limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001', message = 'limit is a number from 1 to 1000';
    end if;
    return query
    select c.id, c.queue_id::text, c.checkpoint_id::text, c.event_count, c.created_at
    from headrace.queue_checkpoints c
    where c.queue_id = q.space || '/' || q.name and c.created_at < coalesce(before, 'infinity')
    order by c.created_at desc limit "limit";
end $$;
