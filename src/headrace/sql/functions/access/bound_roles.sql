-- The roles that are bound, by name, and their namespaces. A bound role sees only its own bindings.
create or replace function headrace.bound_roles()
returns table (role text, namespaces text[], bound_at timestamptz, bound_by text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select coalesce(r.rolname::text, b.role::text), b.namespaces, b.bound_at, b.bound_by
    from headrace.bound_roles b left join pg_roles r on r.oid = b.role
    where headrace._has_access(null) or pg_has_role(headrace._caller_role()::name, b.role, 'USAGE')
      or pg_has_role(session_user, b.role, 'USAGE')
    order by 1
$$;
