-- Raises 42501 where the caller's role is bound to other namespaces. The error does not tell
-- whether this namespace exists. Null stands for all namespaces.
create or replace function headrace._check_access(namespace text) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if not headrace._has_access(_check_access.namespace) then
        raise exception using errcode = '42501',
            message = case when _check_access.namespace is null
                           then format('the role %I is bound to namespaces, and this is about all of them',
                                       headrace._caller_role())
                           else format('the role %I is not bound to the namespace %L', headrace._caller_role(),
                                       _check_access.namespace) end,
            hint = 'headrace.bind_role says where a role may work';
    end if;
end $$;
