-- The shard that stores the events with a key, of ordering or else of idempotency, as far as this shard
-- knows; it is exact for the keys that are at home here. A transaction that publishes with the key
-- belongs into that database.
create or replace function headrace.shard_of(namespace text, key text) returns int
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace._check_access(shard_of.namespace);
    return coalesce((select s.home from headrace.slots s where s.slot = headrace._slot(shard_of.namespace, key)), 0);
end $$;
