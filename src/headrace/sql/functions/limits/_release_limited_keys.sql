-- Gives ordering keys that waited for their rate a token again, those that are due, at most 1,000:
-- the keys of a queue, or, if that is null, of all that the caller may work in. Keys of a queue
-- that has no limits any more are due. Wakes sleeping workers.
-- Concurrency: skips locked rows.
create or replace function headrace._release_limited_keys(t timestamptz, its_queue int default null) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    mine constant int[] := headrace._accessible_queues();
    released headrace.limit_keys;
begin
    for released in
        delete from headrace.limit_keys k
        where k.ctid = any (array(
            select d.ctid from headrace.limit_keys d
            where d.due_at <= t and (its_queue is null or d.queue = its_queue)
              and (mine is null or d.queue = any (mine))
            order by d.due_at limit 1000
            for update skip locked))
        returning k.*
    loop
        perform headrace._add_key_token(released.queue, released.suspect, released.priority, released.route,
                                        released.key);
        if its_queue is null then
            perform headrace._wake(released.queue);
        end if;
    end loop;
end $$;
