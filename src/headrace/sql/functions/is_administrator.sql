-- Whether the caller of a function that runs as the owner is an administrator: a superuser, a member of the owner's role or of
-- headrace_admin. Inside such a function current_user is the owner; the caller is the role that was set, or else the session's user.
create or replace function headrace.is_administrator() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select bool_or(pg_has_role(c.name, o.oid, 'member'))
    from (select coalesce(nullif(current_setting('role'), 'none'), session_user::text)::name as name) c
    cross join pg_roles o
    where o.rolname in ('headrace_admin', current_user)
$$;
