-- The bucket of an event in outcomes: 1,024 neighbours on the number line have one.
create or replace function headrace._bucket(id bigint) returns bigint
language sql immutable parallel safe
as $$ select headrace.place(id) >> 10 $$;
