-- The number of the lock that a start of a node has while it is connected: see advisory_lock.
create or replace function headrace.instance_lock(instance uuid) returns bigint
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select hashtextextended(instance_lock.instance::text, headrace.advisory_lock('instances')) $$;
