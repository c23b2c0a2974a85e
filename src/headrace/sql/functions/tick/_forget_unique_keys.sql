-- Removes unique keys whose event has ended, the longest not looked at first. Reads `most` rows at a
-- time, and returns whether there may be more to read. A key that is still held is looked at again
-- when it is twice as old, so that long-lived events are not looked at again and again.
-- Concurrency: skips locked rows. A publisher of the key waits, and then finds no row.
create or replace function headrace._forget_unique_keys(most int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    due record;
    looked int := 0;
begin
    for due in
        select u.namespace, u.key, headrace._is_unfinished(u.namespace, u.event, u.created_at) as is_held
        from (
            select k.* from headrace.unique_keys k
            where k.look_at <= t
            order by k.look_at limit most
            for update skip locked
        ) u
    loop
        looked := looked + 1;
        if due.is_held then
            update headrace.unique_keys u set look_at = t + greatest(t - u.created_at, interval '1 hour')
            where u.namespace = due.namespace and u.key = due.key;
        else
            delete from headrace.unique_keys u where u.namespace = due.namespace and u.key = due.key;
        end if;
    end loop;
    return looked >= most;
end $$;
