-- The administrative actions and their actors, the newest first: in one namespace, or, without one,
-- everywhere.
-- before: only entries with lower ids, for paging. Raises QU001, QU010.
create or replace function headrace.admin_log(
    namespace text default null, "limit" int default 100, before bigint default null
) returns table (id bigint, at timestamptz, namespace_name text, actor text, action text, target text, details jsonb)
language plpgsql stable security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    home int := (select n.id from headrace.namespaces n where n.name = admin_log.namespace);
begin
    perform headrace._check_access(admin_log.namespace);
    if admin_log."limit" is null or admin_log."limit" not between 1 and 1000 then
        raise exception using errcode = 'QU001', message = 'a limit is a number from 1 to 1000';
    elsif admin_log.namespace is not null and home is null then
        perform headrace._raise_no_such_queue(admin_log.namespace, 'main');
    end if;
    return query
    select l.id, l.at, (select n.name from headrace.namespaces n where n.id = l.namespace), l.actor, l.action, l.target,
           headrace._readable_json(l.details)
    from headrace.admin_log l
    where (admin_log.namespace is null or l.namespace = home) and (admin_log.before is null or l.id < admin_log.before)
    order by l.id desc limit admin_log."limit";
end $$;
