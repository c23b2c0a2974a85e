-- Raises what headrace.problem() found, naming the event's place in its batch (0: it is not of a batch). Strict: without a problem it
-- is not even called, and its null says "go on".
create or replace function headrace.refuse(problem text, place bigint) returns boolean
language plpgsql immutable strict parallel safe
as $$
begin
    raise exception using
        errcode = left(problem, 5),
        message = substr(problem, 7),
        detail = case when place > 0 then format('event %s of the batch', place) else '' end;
end $$;
