-- The problem with the fair_by of a queue; null: none.
create or replace function headrace._fair_by_problem(fair_by jsonb) returns text
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case
        when coalesce(fair_by, 'null') = 'null' then null
        when jsonb_typeof(fair_by) <> 'object' or fair_by - 'tag' <> '{}'
             or jsonb_typeof(fair_by -> 'tag') is distinct from 'string'
             or length(fair_by ->> 'tag') not between 1 and 100
            then 'QU001 the fair_by of a queue is an object of tag, a prefix of 1 to 100 characters, or null for none'
    end
$$;
