-- Checks whether these queues accept an event now, for publish in a namespace that is guarded.
-- Returns the pressure: whether one of them is at or above its high watermark or its limit.
-- enforce: a limit that is reached refuses the event; otherwise it only counts as pressure.
--
-- The depth that decides is a moment old: see _recent_depth. No caller waits for another here, so a
-- limit can be exceeded: by a twentieth of it while fewer than 50,000 events a second are published
-- into the queue, and in addition by one call of each publisher, because calls that decide at the
-- same time do not see each other. Events of open transactions are not counted until they commit.
-- Raises QU050 for a queue that is full, QU051 for one that is draining, whatever `enforce` says.
create or replace function headrace._check_capacity(queues int[], enforce boolean, t timestamptz) returns boolean
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
        where q.id = any (_check_capacity.queues)
          and (q.state = 'draining' or coalesce(q.max_queue_depth, q.high_watermark) is not null)
        order by q.state = 'draining' desc
    loop
        if q.state = 'draining' then
            raise exception using errcode = 'QU051',
                message = format('the queue %L is draining and takes no new events', q.name);
        end if;
        depth := headrace._recent_depth(q, t);
        if enforce and depth >= q.max_queue_depth then
            raise exception using errcode = 'QU050',
                message = format('the queue %L is full: %s deliveries wait, and its max_queue_depth is %s', q.name,
                                 depth, q.max_queue_depth);
        end if;
        pressure := pressure or depth >= least(q.high_watermark, q.max_queue_depth);
    end loop;
    return pressure;
end $$;
