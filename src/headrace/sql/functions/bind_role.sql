-- Binds a role to namespaces: in others it can do and see nothing, whatever it is granted. Also roles that inherit its rights, unless
-- they are bound elsewhere too: what a role is bound to is all that is said of it and of those. Said again, the last word counts.
-- No namespaces ('{}'): none at all. A namespace need not exist yet. A role that nobody binds is free.
-- Concurrency: holds from the commit on; calls that have begun go on. Waits for whoever is just making a namespace or a queue.
-- Raises QU001: there is no such role, or it is a superuser or owns the schema, and such are never bound.
create or replace function headrace.bind_role(role text, namespaces text[], actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
declare
    it pg_roles;
begin
    perform headrace.admit(null);
    select * into it from pg_roles r where r.rolname = bind_role.role;
    if not found then
        raise exception using errcode = 'QU001', message = format('there is no role %L', bind_role.role);
    elsif it.rolsuper or pg_has_role(it.oid, (select s.nspowner from pg_namespace s where s.nspname = 'headrace'), 'USAGE') then
        raise exception using errcode = 'QU001',
            message = format('the role %I is never bound: it is a superuser, or has the rights of the owner of the schema', it.rolname);
    elsif bind_role.namespaces is null or array_position(bind_role.namespaces, null) is not null then
        raise exception using errcode = 'QU001', message = 'a role is bound to an array of namespaces';
    end if;
    perform headrace.refuse(headrace.name_problem('namespace', s.name), 0) from unnest(bind_role.namespaces) s(name);
    perform headrace.lock_bound_roles();
    insert into headrace.bound_roles as b (role, namespaces, bound_at, bound_by)
    values (it.oid, bind_role.namespaces, headrace.now(), headrace.actor(bind_role.actor))
    on conflict (role) do update set namespaces = excluded.namespaces, bound_at = excluded.bound_at, bound_by = excluded.bound_by;
    update headrace.namespaces n set bound = true where not n.bound;
    update headrace.queues q set bound = true where not q.bound;
    perform headrace.log_action(null, bind_role.actor, 'bind_role', it.rolname, jsonb_build_object('namespaces', bind_role.namespaces));
end $$;
