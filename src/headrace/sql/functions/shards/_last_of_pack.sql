-- The highest number that a pack with this one may have.
create or replace function headrace._last_of_pack(id bigint) returns bigint
language sql immutable parallel safe
as $$ select headrace._id_at(headrace.place(id) | 127) $$;
