-- The maximum size of a payload as text, in bytes: 1 MiB, unless it was configured otherwise.
create or replace function headrace.max_payload() returns int
language sql stable security definer parallel safe
set search_path = pg_catalog, pg_temp
as $$ select headrace._setting('max_payload')::int $$;
