-- Marks a start of a node as alive for as long as this session lives: by a lock, which the server
-- releases with the session. Only for a session that belongs to the caller alone, so not behind a
-- transaction pooler. The lock is shared, so that a node that lost its connection need not wait
-- until the server notices. Returns whether the session got the lock; it does not while another
-- session takes over the start's claims.
create or replace function headrace.stay(instance uuid) returns boolean
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select pg_try_advisory_lock_shared(headrace._instance_lock(stay.instance)) $$;
