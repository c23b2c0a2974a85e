-- The queues in which the caller may work, if its role is bound to namespaces. Null: the role is
-- not bound and may work in every queue.
create or replace function headrace._accessible_queues() returns int[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if headrace._has_access(null) then
        return null;
    end if;
    return array(select q.id from headrace.queues q where headrace._has_access(q.space));
end $$;
