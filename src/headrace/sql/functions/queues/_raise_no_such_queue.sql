-- Raises the error that names the missing one, namespace or queue; a role that is bound to other
-- namespaces gets only the error of _check_access.
create or replace function headrace._raise_no_such_queue(namespace text, queue text) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace._check_access(_raise_no_such_queue.namespace);
    if exists (select from headrace.namespaces n where n.name = _raise_no_such_queue.namespace) then
        raise exception using errcode = 'QU011',
            message = format('there is no queue %L in the namespace %L', queue, namespace);
    end if;
    raise exception using errcode = 'QU010',
        message = format('there is no namespace %L', namespace),
        hint = 'headrace.create_namespace makes one';
end $$;
