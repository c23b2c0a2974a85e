-- Takes a lock by its name, as _try_lock does, and waits for the session that holds it, as long as
-- the caller's lock_timeout allows. For READ COMMITTED.
create or replace function headrace._lock(name text) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
begin
    loop
        perform from headrace.locks l where l.name = _lock.name for update;
        exit when found;
        insert into headrace.locks (name) values (_lock.name) on conflict do nothing;
    end loop;
end $$;
