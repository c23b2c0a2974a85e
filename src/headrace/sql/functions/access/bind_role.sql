-- Binds a role to namespaces: in other namespaces the role can do and see nothing, whatever it is
-- granted. This applies to roles that inherit its rights as well. A role may work in the namespaces
-- of its own binding and of every binding that it inherits. A second call replaces the first. No
-- namespaces ('{}'): the role may work in none. A namespace need not exist yet. A role without a
-- binding is not restricted.
-- Concurrency: the binding takes effect at commit; calls in progress continue. Waits for
-- transactions that are making a namespace or a queue.
-- Raises QU001: the role does not exist, is a superuser or owns the schema. Superusers and the
-- owner are never bound.
create or replace function headrace.bind_role(role text, namespaces text[], actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
#variable_conflict use_column
declare
    it pg_roles;
begin
    perform headrace._check_access(null);
    select * into it from pg_roles r where r.rolname = bind_role.role;
    if not found then
        raise exception using errcode = 'QU001', message = format('there is no role %L', bind_role.role);
    elsif it.rolsuper or pg_has_role(it.oid, (select s.nspowner from pg_namespace s where s.nspname = 'headrace'),
                                     'USAGE') then
        raise exception using errcode = 'QU001',
            message = format(
                'the role %I is never bound: it is a superuser, or has the rights of the owner of the schema',
                it.rolname);
    elsif bind_role.namespaces is null or array_position(bind_role.namespaces, null) is not null then
        raise exception using errcode = 'QU001', message = 'a role is bound to an array of namespaces';
    end if;
    perform headrace._raise_problem(headrace._name_problem('namespace', s.name), 0)
    from unnest(bind_role.namespaces) s(name);
    perform headrace._lock_bound_roles();
    insert into headrace.bound_roles as b (role, namespaces, bound_at, bound_by)
    values (it.oid, bind_role.namespaces, headrace._now(), headrace._actor(bind_role.actor))
    on conflict (role) do update set namespaces = excluded.namespaces, bound_at = excluded.bound_at,
        bound_by = excluded.bound_by;
    update headrace.namespaces n set bound = true where not n.bound;
    update headrace.queues q set bound = true where not q.bound;
    perform headrace._log_action(null, bind_role.actor, 'bind_role', it.rolname,
                                 jsonb_build_object('namespaces', bind_role.namespaces));
end $$;
