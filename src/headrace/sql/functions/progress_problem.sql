-- What makes a progress unreadable for somebody, or too large; null: nothing. See payload_problem.
create or replace function headrace.progress_problem(progress jsonb) returns text
language sql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(
        replace(headrace.payload_problem(progress), 'the payload', 'the progress'),
        case when octet_length(progress::text) > 64 * 1024 then 'QU003 the progress is larger than 64 KiB' end)
$$;
