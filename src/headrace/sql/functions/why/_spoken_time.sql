-- A time as the sentences of why name it.
create or replace function headrace._spoken_time(at timestamptz) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"') $$;
