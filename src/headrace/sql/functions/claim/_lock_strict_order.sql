-- Waits for the turn to claim from a queue of strict order, and keeps it until the transaction
-- ends: one claim at a time looks for the oldest delivery. False: another claim has not committed
-- for half a second.
create or replace function headrace._lock_strict_order(queue int) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set lock_timeout = '500ms'
as $$
begin
    perform headrace._lock(format('order %s', queue));
    return true;
exception when lock_not_available then
    return false;
end $$;
