-- The queue depth: how many deliveries of a queue wait to be claimed, ready or for the turn of
-- their ordering key. The count stops at `most`: its cost grows with the number it returns, not
-- with the number of deliveries that wait.
create or replace function headrace._depth(queue int, most bigint) returns bigint
language plpgsql stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off     -- it would collect every waiting row before the first is counted
set enable_sort = off
set plan_cache_mode = force_generic_plan
as $$
declare
    -- Deliveries with a key first: where they are many, so are the tokens in ready, and need not be
    -- read.
    waiting bigint := (select count(*) from (
        select from headrace.keyed k where k.queue = _depth.queue order by k.key, k.event limit most) k);
    size int;
begin
    if waiting < most then
        for size in
            select coalesce(cardinality(r.pack), 1) from headrace.ready r where r.queue = _depth.queue and r.key is null
        loop
            waiting := waiting + size;
            exit when waiting >= most;
        end loop;
    end if;
    return least(waiting, most);
end $$;
