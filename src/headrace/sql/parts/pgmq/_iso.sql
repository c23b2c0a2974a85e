-- A time as JavaScript writes it.
create or replace function pgmq._iso(at timestamptz) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') $$;
