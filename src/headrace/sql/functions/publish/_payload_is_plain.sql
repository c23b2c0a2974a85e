-- Whether a payload needs no thorough check: 300 characters cannot be nested deeper than 150, nor
-- hold a number outside the range of a double.
create or replace function headrace._payload_is_plain(payload jsonb) returns boolean
language sql stable parallel safe
as $$ select pg_column_size(payload) <= 1000 and octet_length(payload::text) <= 300 $$;
