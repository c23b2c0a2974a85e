-- The lowest number that a pack with this one may have.
create or replace function headrace._first_of_pack(id bigint) returns bigint
language sql immutable parallel safe
as $$ select headrace._id_at(headrace.place(id) >> 7 << 7) $$;
