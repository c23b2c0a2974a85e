-- The digest of a type and its tags, sorted: see the table routes. Not cryptographic: a collision
-- would only let a consumer of one type see events of another that a client with the right to
-- publish made up. Nor need it be the same on every version of PostgreSQL: the table routes defines
-- a route. Declared stable, as array_to_string is: an immutable function that calls a stable one is
-- not inlined, and before PostgreSQL 18 that took a third of a publish's time.
create or replace function headrace._route(type text, sorted_tags text[]) returns bigint
language sql stable parallel safe
as $$
    select case when sorted_tags is null then hashtextextended(type, 0)
                else hashtextextended(type || ',' || array_to_string(sorted_tags, ','), 0) end
$$;
