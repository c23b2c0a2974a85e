-- The role of the caller: the one it has set, or else the session's. Inside a definer function current_user is the owner.
create or replace function headrace.acting_role() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select coalesce(nullif(current_setting('role', true), 'none'), session_user) $$;
