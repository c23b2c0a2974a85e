-- A type with asterisks as a pattern for LIKE.
create or replace function headrace._like_pattern(type text) returns text
language sql immutable parallel safe
as $$ select replace(replace(replace(replace(type, E'\\', E'\\\\'), '%', E'\\%'), '_', E'\\_'), '*', '%') $$;
