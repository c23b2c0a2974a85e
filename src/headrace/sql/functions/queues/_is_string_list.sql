-- Whether a value is a list of 1 to 1000 strings of 1 to `longest` characters, null, or missing.
create or replace function headrace._is_string_list(value jsonb, longest int) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case jsonb_typeof(value)
        when 'array' then jsonb_array_length(value) between 1 and 1000
                          and not value @? 'strict $[*] ? (@.type() != "string")'
                          and (select min(length(e)) >= 1 and max(length(e)) <= longest
                               from jsonb_array_elements_text(value) e)
        else coalesce(jsonb_typeof(value) = 'null', true)
    end
$$;
