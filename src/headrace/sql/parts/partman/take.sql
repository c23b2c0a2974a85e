-- Locks a table for this transaction, with all its months: publishers wait for a moment.
-- Raises QU041 if other sessions hold it for long.
create or replace function headrace_partman.take(parent text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
begin
    execute format('lock table headrace.%I in access exclusive mode', parent);
exception when lock_not_available then
    raise exception using errcode = 'QU041', message =
        format('A session has been reading headrace.%s for more than ten seconds, and publishers would wait: '
               'try again later.', parent);
end $$;
