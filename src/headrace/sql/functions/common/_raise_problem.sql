-- Raises the problem that headrace._header_problem() found, with the event's place in its batch (0:
-- no batch). Strict: without a problem it is not even called, and its null lets the caller go on.
create or replace function headrace._raise_problem(problem text, place bigint) returns boolean
language plpgsql immutable strict parallel safe
as $$
begin
    raise exception using
        errcode = left(problem, 5),
        message = substr(problem, 7),
        detail = case when place > 0 then format('event %s of the batch', place) else '' end;
end $$;
