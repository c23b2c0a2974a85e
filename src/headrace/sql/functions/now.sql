-- The one clock: the database's, read as it runs on (a transaction may be long). Volatile, so that it is inlined;
-- every function reads it once, into a variable, because as a condition it would keep an index from being used.
-- Tests replace it to move time.
create or replace function headrace.now() returns timestamptz
language sql volatile parallel safe
as $$ select clock_timestamp() $$;
