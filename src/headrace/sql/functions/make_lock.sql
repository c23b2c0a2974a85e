-- Makes the row of a lock: see try_lock. Raises 55P03 if another session is just making it.
create or replace function headrace.make_lock(name text) returns void
language sql
set search_path = pg_catalog, pg_temp
set lock_timeout = '1ms'
as $$ insert into headrace.locks (name) values (make_lock.name) on conflict do nothing $$;
