-- The end of the log now, in any namespace. Uncommitted entries of open transactions may be before
-- it. A stream of entries from now on begins with log_now: a number that was merely drawn is no
-- cursor, see _resumed_reading.
create or replace function headrace.log_end() returns bigint
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select (headrace._last_drawn_id() + 1 << 10) - 1
$$;
