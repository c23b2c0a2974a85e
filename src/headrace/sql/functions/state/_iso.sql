-- A time as the state document writes it: ISO 8601, UTC, with milliseconds. Without settings of its
-- own, so that it becomes a part of its query.
create or replace function headrace._iso(at timestamptz) returns text
language sql stable parallel safe
as $$ select pg_catalog.to_char(_iso.at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') $$;
