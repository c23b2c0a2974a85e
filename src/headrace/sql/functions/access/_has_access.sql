-- Whether the caller may work in a namespace: no role is bound, the caller's is not, or it is bound
-- to this one too: see bind_role. Null stands for all namespaces. A caller that has read a row of
-- namespaces or queues needs to ask only if the row's `bound` is true.
create or replace function headrace._has_access(namespace text) returns boolean
language plpgsql stable parallel safe
set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from headrace.bound_roles) then
        return true;
    end if;
    return (select a.namespaces is null or coalesce(_has_access.namespace = any (a.namespaces), false)
            from headrace.admission a);
end $$;
