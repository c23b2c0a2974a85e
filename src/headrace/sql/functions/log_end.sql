-- Where the log ends now: whoever goes on after it with log_since is told what is written from now on, in any namespace. What a
-- transaction has begun to write and not committed may be before it.
create or replace function headrace.log_end() returns bigint
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$
    select ((case when s.is_called then s.last_value else s.last_value - 1 end) + 1 << 10) - 1 from headrace.ids s
$$;
