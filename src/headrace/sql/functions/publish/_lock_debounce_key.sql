-- The row of a debounce key in a queue, locked until the transaction ends. Makes one for this event
-- if there is none.
-- Concurrency: waits for a session that has the row: an open publisher of the key.
create or replace function headrace._lock_debounce_key(
    queue int, key text, event bigint, ordering_key text, t timestamptz
) returns headrace.debounce_keys
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_variable
declare
    last headrace.debounce_keys;
begin
    loop    -- upkeep may remove the row between the two
        insert into headrace.debounce_keys (queue, key, event, created_at, first_at, ordering_key, look_at)
        values (queue, key, event, t, t, ordering_key, t + interval '1 hour')
        on conflict do nothing
        returning * into last;
        exit when found;
        select d.* into last from headrace.debounce_keys d where d.queue = queue and d.key = key for update;
        exit when found;
    end loop;
    return last;
end $$;
