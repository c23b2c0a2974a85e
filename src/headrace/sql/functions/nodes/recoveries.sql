-- The takeovers in a queue from nodes that had died, the newest first: see recover. checkpoint_id:
-- the queue's checkpoint at the time.
-- status: completed, or running. Retained as long as finished months.
-- Raises QU001, QU010, QU011.
create or replace function headrace.recoveries(namespace text, queue text default 'main', "limit" int default 100)
returns table (node_id text, checkpoint_id text, events_recovered bigint, recovery_start_time timestamptz,
               recovery_complete_time timestamptz, status text)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    q constant headrace.queues := headrace._queue_named(recoveries.namespace, recoveries.queue);
begin
    if "limit" is null or "limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001', message = 'limit is a number from 1 to 1000';
    end if;
    return query
    select r.node_id, r.checkpoint_id::text, r.events_recovered, r.recovery_start_time, r.recovery_complete_time,
           case when r.recovery_complete_time is null then 'running' else 'completed' end
    from headrace.recoveries r where r.queue = q.id
    order by r.id desc limit "limit";
end $$;
