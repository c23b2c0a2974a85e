-- The row of a unique key, locked until the transaction ends. Makes one for this event if there is
-- none; event null: then there is none, and all of the row is null.
-- Concurrency: waits for a session that has the row. See _take_unique_keys.
create or replace function headrace._lock_unique_key(
    home int, key text, event bigint, created_at timestamptz
) returns headrace.unique_keys
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    holder headrace.unique_keys;
begin
    loop    -- upkeep may remove the row between the two
        if event is not null then
            insert into headrace.unique_keys (namespace, key, event, created_at, look_at)
            values (home, key, event, created_at, created_at + interval '1 hour')
            on conflict do nothing
            returning * into holder;
        end if;
        if holder.event is null then
            select u.* into holder from headrace.unique_keys u where u.namespace = home and u.key = key for update;
        end if;
        exit when holder.event is not null or event is null;
    end loop;
    return holder;
end $$;
