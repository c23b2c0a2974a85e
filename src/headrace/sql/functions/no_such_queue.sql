-- Raises the error that says which of the two is missing; to a role that is not bound to the namespace, only that.
create or replace function headrace.no_such_queue(namespace text, queue text) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    perform headrace.admit(no_such_queue.namespace);
    if exists (select from headrace.namespaces n where n.name = no_such_queue.namespace) then
        raise exception using errcode = 'QU011',
            message = format('there is no queue %L in the namespace %L', queue, namespace);
    end if;
    raise exception using errcode = 'QU010',
        message = format('there is no namespace %L', namespace),
        hint = 'headrace.create_namespace makes one';
end $$;
