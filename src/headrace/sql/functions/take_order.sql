-- Waits for the turn to claim from a queue of strict order, where one claim at a time looks what is the oldest: until the transaction ends.
-- False: another claim has not been committed for half a second.
create or replace function headrace.take_order(queue int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
begin
    perform headrace.lock(format('order %s', queue));
    return true;
exception when lock_not_available then
    return false;
end $$;
