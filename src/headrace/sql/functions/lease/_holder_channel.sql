-- The channel on which a start of a node hears that deliveries were taken out of its claims.
create or replace function headrace._holder_channel(instance uuid) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select 'headrace_holder_' || replace(instance::text, '-', '') $$;
