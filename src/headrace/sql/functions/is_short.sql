-- Whether a payload needs no thorough look: 300 characters cannot be nested deeper than 150, nor hold a number outside
-- the range of a double.
create or replace function headrace.is_short(payload jsonb) returns boolean
language sql stable parallel safe
as $$ select pg_column_size(payload) <= 1000 and octet_length(payload::text) <= 300 $$;
