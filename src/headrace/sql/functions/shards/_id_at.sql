-- The number at a place of this database's number line: see place, and the same goes for it.
create or replace function headrace._id_at(place bigint) returns bigint
language sql immutable parallel safe
as $$ select place $$;
