-- The limits of a queue as they are stored: without fields that are null, and null for an empty
-- list.
create or replace function headrace._plain_limits(limits jsonb) returns jsonb
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case when jsonb_typeof(limits) = 'array' then nullif(jsonb_strip_nulls(limits), '[]') end
$$;
