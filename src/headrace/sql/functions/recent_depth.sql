-- How deep a queue that has a limit is, counted no further than the limit: the newest count, if it is young enough, else a new
-- one, written down for the others.
--
-- How old it may be depends on how far the queue is from its limit: not so old that 50,000 events a second could have gone
-- a twentieth of the limit beyond it, and never older than a second. One caller counts, in half of that time; the
-- others rely on the last count meanwhile, and if its time is over (he is in a long transaction, say) they count as well.
-- A count costs what is counted, so it takes about a tenth of a processor at most. tick counts once a second, so that
-- publishers seldom have to; what a publisher has counted before it was refused is rolled back with it.
-- Concurrency: waits for nobody, and nobody waits for it.
create or replace function headrace.recent_depth(q headrace.queues, t timestamptz) returns bigint
language plpgsql
set search_path = pg_catalog, pg_temp
set plan_cache_mode = force_generic_plan
as $$
declare
    last headrace.depths;
    trusted interval;
begin
    select * into last from headrace.depths d where d.queue = q.id order by d.at desc limit 1;
    if found and last.at <= t + interval '1 second' then  -- clocks may be set back
        trusted := headrace.trusted(q, last.depth);
        if t < last.at + trusted / 2
           or t < last.at + trusted and not headrace.try_lock('depth ' || q.id) then
            return last.depth;
        end if;
    end if;
    return headrace.count_depth(q, t);
end $$;
