-- A part of the upkeep has failed: when is it to be tried again? That somebody else had a lock is nothing to speak of;
-- anything else is warned of, and not every second.
create or replace function headrace.put_off(part text, state text, message text) returns interval
language plpgsql
as $$
begin
    if state in ('55P03', '40P01') then
        return interval '0';
    end if;
    raise warning 'headrace: % failed and will be tried again: %', part, message;
    return interval '1 minute';
end $$;
