-- A list of strings as an array, sorted, each once; null stays null.
create or replace function headrace._string_set(list jsonb) returns text[]
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case when jsonb_typeof(list) = 'array' then
        array(select distinct e collate "C" from jsonb_array_elements_text(list) e order by 1) end
$$;
