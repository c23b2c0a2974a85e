-- The queues in which the caller may work, if its role is bound to namespaces; null: it is not, so all of them.
create or replace function headrace.admitted_queues() returns int[]
language plpgsql stable
set search_path = pg_catalog, pg_temp
as $$
begin
    if headrace.admits(null) then
        return null;
    end if;
    return array(select q.id from headrace.queues q where headrace.admits(q.space));
end $$;
