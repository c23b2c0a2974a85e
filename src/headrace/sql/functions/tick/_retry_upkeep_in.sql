-- The time until a failed part of the upkeep is retried. A lock that another session holds is no
-- reason for a warning; any other failure raises a warning, and is not retried every second.
create or replace function headrace._retry_upkeep_in(part text, state text, message text) returns interval
language plpgsql
as $$
begin
    if state in ('55P03', '40P01') then
        return interval '0';
    end if;
    raise warning 'headrace: % failed and will be tried again: %', part, message;
    return interval '1 minute';
end $$;
