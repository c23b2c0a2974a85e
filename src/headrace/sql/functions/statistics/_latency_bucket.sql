-- The bucket of a histogram in history for a time: the first bucket ends at a millisecond, and
-- three follow for every doubling, up to days.
create or replace function headrace._latency_bucket(seconds float8) returns int
language sql immutable
set search_path = pg_catalog, pg_temp
as $$
    select case when seconds < 0.001 then 1
                else least(90, 2 + floor(3 * ln(seconds * 1000) / ln(2::float8) + 1e-9)) end::int
$$;
