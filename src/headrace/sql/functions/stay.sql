-- Says that a start of a node lives for as long as this session does: by a lock, which the server gives up with the session. Only for
-- sessions that are the caller's own; behind a transaction pooler they are not. Shared, so that one who has lost his connection
-- need not wait until the server knows. Returns whether it is so; somebody may just be taking its claims over.
create or replace function headrace.stay(instance uuid) returns boolean
language sql volatile security definer
set search_path = pg_catalog, pg_temp
as $$ select pg_try_advisory_lock_shared(headrace.instance_lock(stay.instance)) $$;
