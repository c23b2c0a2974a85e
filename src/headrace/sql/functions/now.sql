-- The one clock: the database's, read as it runs on (a transaction may be long). Declared stable, so that
-- comparisons with it can use an index. Tests replace it to move time.
create function headrace.now() returns timestamptz
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$ select clock_timestamp() $$;
