-- The problem with the name of a namespace or queue; null: none. A name is data, never an
-- identifier: quotes and semicolons are allowed, characters that cannot be displayed or typed are
-- not.
create or replace function headrace._name_problem(kind text, name text) returns text
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case
        when name is null or name = '' then format('QU001 a %s needs a name', kind)
        when length(name) > 100 then format('QU001 the name of a %s has at most 100 characters', kind)
        when name ~ '[[:cntrl:]/]' or name <> btrim(name)
            then format('QU001 the name of a %s has no control characters, no slash and no blank at its ends', kind)
    end
$$;
