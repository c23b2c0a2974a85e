-- The one clock: the database's current time, also within a long transaction. Volatile, so that it
-- is inlined; every function reads it once, into a variable, because as a condition it would keep
-- an index from being used. Tests replace it to move time.
create or replace function headrace._now() returns timestamptz
language sql volatile parallel safe
as $$ select clock_timestamp() $$;
