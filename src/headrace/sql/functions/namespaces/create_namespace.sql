-- Makes a namespace with its queue `main`, or does nothing if it exists; returns whether it is new.
-- actor: the name in the log (see _log_action); default: the caller's role.
-- Concurrency: a second creator waits for the first to commit. Raises QU001 for an invalid name, or
-- if another namespace has the same queue name (see queue_name_for_namespace).
create or replace function headrace.create_namespace(
    namespace text, metadata jsonb default '{}', actor text default null
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    made int;
begin
    perform headrace._check_access(create_namespace.namespace);
    perform headrace._raise_problem(headrace._name_problem('namespace', create_namespace.namespace), 0);
    if jsonb_typeof(create_namespace.metadata) <> 'object' then
        raise exception using errcode = 'QU001', message = 'the metadata of a namespace are a JSON object';
    end if;
    perform headrace._raise_problem(headrace._document_problem(create_namespace.metadata,
                                                               'the metadata of a namespace'), 0);
    if exists (select from headrace.namespaces n where n.name = create_namespace.namespace) then
        perform headrace._confirm_stored();
        return false;
    end if;
    -- A session that binds a role or moves a slot now would miss it.
    lock table headrace.bound_roles, headrace.slots in row exclusive mode;
    insert into headrace.namespaces (name, metadata, created_at, bound, sharded)
    values (create_namespace.namespace, coalesce(create_namespace.metadata, '{}'), headrace._now(),
            exists (select from headrace.bound_roles), headrace._is_sharded())
    on conflict do nothing
    returning id into made;
    if made is null then
        if exists (select from headrace.namespaces n where n.name = create_namespace.namespace) then
            perform headrace._confirm_stored();
            return false;
        end if;
        raise exception using errcode = 'QU001',
            message = format('another namespace has the queue name %L already',
                             headrace.queue_name_for_namespace(create_namespace.namespace));
    end if;
    insert into headrace.queues (namespace, name, space, created_at, bound)
    values (made, 'main', create_namespace.namespace, headrace._now(), exists (select from headrace.bound_roles));
    perform headrace._log_action(made, create_namespace.actor, 'create_namespace', create_namespace.namespace);
    return true;
end $$;
