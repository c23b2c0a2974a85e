-- Removes the binding of a role; bindings that the role inherits stay. Returns whether the role was
-- bound. A role that has been dropped is named by the number that bound_roles shows.
create or replace function headrace.unbind_role(role text, actor text default null) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
begin
    perform headrace._check_access(null);
    perform headrace._lock_bound_roles();
    delete from headrace.bound_roles b
    where coalesce((select r.rolname::text from pg_roles r where r.oid = b.role), b.role::text) = unbind_role.role;
    if not found then
        perform headrace._confirm_stored();
        return false;
    end if;
    if not exists (select from headrace.bound_roles) then
        update headrace.namespaces n set bound = false where n.bound;
        update headrace.queues q set bound = false where q.bound;
    end if;
    perform headrace._log_action(null, unbind_role.actor, 'unbind_role', unbind_role.role);
    return true;
end $$;
