-- The schema version of this database, for clients to check before they work with it.
create or replace function headrace.version(out major int, out minor int)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$ select 1, max(m.version) from headrace.migrations m $$;
