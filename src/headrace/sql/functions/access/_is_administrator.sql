-- Whether the caller of a function that runs as the owner is an administrator: a superuser, a
-- member of the owner's role or of headrace_admin.
create or replace function headrace._is_administrator() returns boolean
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select bool_or(pg_has_role(headrace._caller_role()::name, o.oid, 'member'))
    from pg_roles o where o.rolname in ('headrace_admin', current_user)
$$;
