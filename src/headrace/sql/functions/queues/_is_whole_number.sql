-- Whether a value is a whole number between two others, null, or missing.
create or replace function headrace._is_whole_number(value jsonb, low int, high int) returns boolean
language sql immutable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select case jsonb_typeof(value)
        when 'number' then case when value::text ~ E'^\\d{1,10}$' then value::text::bigint between low and high
                                else false end
        else coalesce(jsonb_typeof(value) = 'null', true)
    end
$$;
