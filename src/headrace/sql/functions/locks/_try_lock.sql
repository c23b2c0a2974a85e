-- Takes a lock by its name (see the table locks), until the transaction ends, if no other session
-- holds it; returns whether it did. A row lock: roles that may not touch the table cannot block it,
-- and it takes no place in the server's table of locks.
-- Concurrency: never waits, but for a millisecond where another session makes the same new name.
create or replace function headrace._try_lock(name text) returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
    perform from headrace.locks l where l.name = _try_lock.name for update skip locked;
    if found then
        return true;
    elsif exists (select from headrace.locks l where l.name = _try_lock.name) then
        return false;
    end if;
    begin
        perform headrace._make_lock(_try_lock.name);
    -- the second: above READ COMMITTED, another session made it just now
    exception when lock_not_available or serialization_failure then
        return false;
    end;
    perform from headrace.locks l where l.name = _try_lock.name for update skip locked;
    return found;
end $$;
