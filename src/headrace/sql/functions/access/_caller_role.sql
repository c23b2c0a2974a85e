-- The role of the caller: the one that was set by SET ROLE, else the user of the session. Inside a
-- definer function current_user is the owner.
create or replace function headrace._caller_role() returns text
language sql stable
set search_path = pg_catalog, pg_temp
as $$ select coalesce(nullif(current_setting('role'), 'none'), session_user) $$;
