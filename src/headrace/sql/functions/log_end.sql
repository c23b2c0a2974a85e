-- Where the log ends now, in any namespace. What a transaction has begun to write and not committed may be before it. A stream
-- that is to tell what is written from now on begins with log_now: a number that was merely drawn is no cursor, see resumed.
create or replace function headrace.log_end() returns bigint
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select (headrace.drawn() + 1 << 10) - 1
$$;
