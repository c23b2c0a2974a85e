-- The number of the lock that a start of a node holds while it is connected: see _advisory_lock.
create or replace function headrace._instance_lock(instance uuid) returns bigint
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select hashtextextended(_instance_lock.instance::text, headrace._advisory_lock('instances')) $$;
