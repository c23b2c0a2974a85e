-- Sessions that block others with a lock, and the purpose of the lock. Such a lock costs latency.
--     sleepers, instances     an advisory lock of ours (see _advisory_lock), held by a role that
--                             may not use the schema, or held exclusively by a session that is not
--                             at work here
--     upkeep                  a part of tick (see the table locks), in a transaction that has been
--                             open for longer than `late`. Listed only where the owner of the
--                             schema may see the start of the transaction
-- A role that is bound to namespaces sees none: they may belong to other tenants.
create or replace function headrace.locks_in_the_way(late interval default '1 minute')
returns table (purpose text, pid int, role text, application text)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    with held as materialized (
        select l.* from pg_locks l
        where l.granted and headrace._has_access(null)
          and (l.database = (select d.oid from pg_database d where d.datname = current_database())
               or l.locktype = 'transactionid')
    )
    select case h.objsubid when 2 then 'sleepers' else 'instances' end, h.pid, a.usename::text, a.application_name
    from held h join pg_stat_activity a on a.pid = h.pid
    where h.locktype = 'advisory'
      and (h.objsubid = 2 and h.classid::bigint = headrace._advisory_lock('sleepers')
           and h.objid::bigint in (select q.id from headrace.queues q)
           or h.objsubid = 1 and (h.classid::bigint << 32 | h.objid::bigint) in (
                  select headrace._instance_lock(i.instance) from headrace.instances i))
      and (not has_schema_privilege(a.usesysid, 'headrace', 'usage')
           -- a publisher that looks for sleepers, a start that takes claims over
           or h.mode = 'ExclusiveLock' and not exists (
                  select from held w join pg_class c on c.oid = w.relation
                  where w.pid = h.pid and w.locktype = 'relation' and c.relnamespace = 'headrace'::regnamespace))
    union
    select 'upkeep', h.pid, a.usename::text, a.application_name
    from headrace.locks k
    join held h on h.locktype = 'transactionid' and h.transactionid = k.xmax
    join pg_stat_activity a on a.pid = h.pid
    where k.name !~ ' ' and a.xact_start < clock_timestamp() - late
    order by 1, 2
$$;
