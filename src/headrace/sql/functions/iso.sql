-- A time as the state document writes it: ISO 8601, UTC, with milliseconds.
create or replace function headrace.iso(at timestamptz) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select to_char(iso.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') $$;
