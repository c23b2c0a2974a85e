-- Locks a namespace for a change of its queues: changes take turns. Publishers only read it and
-- never wait.
-- Raises QU010.
create or replace function headrace._lock_namespace(namespace text) returns headrace.namespaces
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    locked headrace.namespaces;
begin
    select * into locked from headrace.namespaces n where n.name = _lock_namespace.namespace
        and (not n.bound or headrace._has_access(n.name)) for no key update;
    if not found then
        perform headrace._raise_no_such_queue(_lock_namespace.namespace, 'main');
    end if;
    return locked;
end $$;
