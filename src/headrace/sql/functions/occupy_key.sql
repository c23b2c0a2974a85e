-- Makes an ordering key active for an event; returns whether it did: not if it is active already. Raises 55P03 if a claim that is
-- not committed yet is at the key, or one that ends it.
create or replace function headrace.occupy_key(queue int, key text, event bigint) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '1ms'
as $$
#variable_conflict use_column
begin
    insert into headrace.active (queue, key, event) values (occupy_key.queue, occupy_key.key, occupy_key.event)
    on conflict do nothing;
    return found;
end $$;
