-- Makes the row of a lock: see _try_lock. Raises 55P03 if another session is making it now.
create or replace function headrace._make_lock(name text) returns void
language sql
set search_path = pg_catalog, pg_temp
set lock_timeout = '1ms'
as $$ insert into headrace.locks (name) values (_make_lock.name) on conflict do nothing $$;
