-- A part of the upkeep has failed. That somebody else had a lock is nothing to speak of; anything else is warned of.
create or replace function headrace.put_off(part text, state text, message text) returns boolean
language plpgsql
as $$
begin
    if state not in ('55P03', '40P01') then
        raise warning 'headrace: % failed and will be tried again: %', part, message;
    end if;
    return false;
end $$;
