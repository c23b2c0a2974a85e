-- Sessions that hold an advisory lock of ours (see advisory_lock: purpose) and are in the way with it: of a role that may not use the schema, or held
-- so that others cannot share it, by a session that is not at work here. What that costs is latency.
create or replace function headrace.locks_in_the_way()
returns table (purpose text, pid int, role text, application text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with held as materialized (
        select l.* from pg_locks l
        where l.granted and l.database = (select d.oid from pg_database d where d.datname = current_database())
    )
    select distinct case h.objsubid when 2 then 'sleepers' else 'instances' end, h.pid, a.usename::text, a.application_name
    from held h join pg_stat_activity a on a.pid = h.pid
    where h.locktype = 'advisory'
      and (h.objsubid = 2 and h.classid::bigint = headrace.advisory_lock('sleepers') and h.objid::bigint in (select q.id from headrace.queues q)
           or h.objsubid = 1 and (h.classid::bigint << 32 | h.objid::bigint) in (
                  select headrace.instance_lock(i.instance) from headrace.instances i))
      and (not has_schema_privilege(a.usesysid, 'headrace', 'usage')
           or h.mode = 'ExclusiveLock' and not exists (     -- a publisher that looks who sleeps, a start that takes claims over
                  select from held w join pg_class c on c.oid = w.relation
                  where w.pid = h.pid and w.locktype = 'relation' and c.relnamespace = 'headrace'::regnamespace))
    order by 1, 2
$$;
