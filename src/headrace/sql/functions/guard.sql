-- Whether these queues take an event now, for publish in a namespace that is guarded; returns the pressure: that one of them is at
-- or above its high watermark or its limit. enforce: a limit that is reached refuses the event, else it only tells of pressure.
--
-- The depth that decides is a moment old: see recent_depth. Nobody waits for anybody here, so a limit can be passed: by a
-- twentieth of it while fewer than 50,000 events a second are published into the queue, and besides by one call of each
-- publisher, because calls that decide at the same time do not see each other. What open transactions have published is not
-- counted until they commit.
-- Raises QU050 for a queue that is full, QU051 for one that is draining, whatever `enforce` says.
create or replace function headrace.guard(queues int[], enforce boolean, t timestamptz) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    q headrace.queues;
    depth bigint;
    pressure boolean := false;
begin
    for q in
        select * from headrace.queues q
        where q.id = any (guard.queues) and (q.state = 'draining' or coalesce(q.max_queue_depth, q.high_watermark) is not null)
        order by q.state = 'draining' desc
    loop
        if q.state = 'draining' then
            raise exception using errcode = 'QU051', message = format('the queue %L is draining and takes no new events', q.name);
        end if;
        depth := headrace.recent_depth(q, t);
        if enforce and depth >= q.max_queue_depth then
            raise exception using errcode = 'QU050',
                message = format('the queue %L is full: %s deliveries wait, and its max_queue_depth is %s', q.name, depth, q.max_queue_depth);
        end if;
        pressure := pressure or depth >= least(q.high_watermark, q.max_queue_depth);
    end loop;
    return pressure;
end $$;
