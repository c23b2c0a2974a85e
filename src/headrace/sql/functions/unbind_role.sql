-- Makes a role as free as it was before bind_role, but for what it inherits. Returns whether it was bound; of a role that has been
-- dropped, by the number that bound_roles shows.
create or replace function headrace.unbind_role(role text, actor text default null) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
begin
    perform headrace.admit(null);
    perform headrace.lock_bound_roles();
    delete from headrace.bound_roles b
    where coalesce((select r.rolname::text from pg_roles r where r.oid = b.role), b.role::text) = unbind_role.role;
    if not found then
        perform headrace.confirm();
        return false;
    end if;
    if not exists (select from headrace.bound_roles) then
        update headrace.namespaces n set bound = false where n.bound;
        update headrace.queues q set bound = false where q.bound;
    end if;
    perform headrace.log_action(null, unbind_role.actor, 'unbind_role', unbind_role.role);
    return true;
end $$;
