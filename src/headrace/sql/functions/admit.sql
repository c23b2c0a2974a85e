-- Raises 42501 where the caller's role is bound to other namespaces; whether this one exists it does not tell. Null stands for all
-- namespaces.
create or replace function headrace.admit(namespace text) returns void
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if not headrace.admits(admit.namespace) then
        raise exception using errcode = '42501',
            message = case when admit.namespace is null
                           then format('the role %I is bound to namespaces, and this is about all of them', headrace.caller())
                           else format('the role %I is not bound to the namespace %L', headrace.caller(), admit.namespace) end,
            hint = 'headrace.bind_role says where a role may work';
    end if;
end $$;
