-- The depth of a queue that has a limit, counted no further than the limit: the newest count, if it
-- is young enough, else a new one, stored for other callers.
--
-- The permitted age depends on the queue's distance from its limit: 50,000 events a second must not
-- have exceeded the limit by more than a twentieth within that age, and no count is used after a
-- second. After half of that age one caller counts. The other callers use the last count meanwhile,
-- and if its time is over (the counting caller is in a long transaction, say) they count as well. A
-- count costs as much as the rows it reads, so counting takes about a tenth of a processor at most.
-- tick counts once a second, so that publishers seldom have to; the count of a publisher that is
-- then refused is rolled back with it.
-- Concurrency: waits for no session and blocks none.
create or replace function headrace._recent_depth(q headrace.queues, t timestamptz) returns bigint
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
        trusted := headrace._depth_is_good_for(q, last.depth);
        if t < last.at + trusted / 2
           or t < last.at + trusted and not headrace._try_lock('depth ' || q.id) then
            return last.depth;
        end if;
    end if;
    return headrace._store_depth(q, t);
end $$;
