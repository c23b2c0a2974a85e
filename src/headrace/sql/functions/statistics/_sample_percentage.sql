-- The percentage of a table that this many of its pages make up: the argument of tablesample
-- system.
create or replace function headrace._sample_percentage(place text, pages int) returns float8
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select least(100, 100.0 * pages * current_setting('block_size')::int
                      / greatest(pg_relation_size(format('headrace.%I', place)::regclass), 1))::float8
$$;
