-- How many bytes a payload may have as text: 1 MiB, unless it was configured otherwise.
create or replace function headrace.max_payload() returns int
language sql stable security definer parallel safe
set search_path = pg_catalog, pg_temp
as $$ select headrace.setting('max_payload')::int $$;
