-- The time by which retention removes rows: the earliest of the last twelve readings of the clock,
-- so about an hour ago; -infinity as long as there are fewer. A clock that jumps ahead is trusted
-- after an hour, also if the database was switched off for a year; a clock that is right again
-- within the hour has removed nothing. See _read_clock.
create or replace function headrace._retention_clock() returns timestamptz
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select coalesce((select r.at from headrace.clock_readings r order by r.at desc offset 11 limit 1), '-infinity')
$$;
