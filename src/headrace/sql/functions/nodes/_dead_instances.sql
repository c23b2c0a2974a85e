-- Starts of nodes that are dead for sure: they took their lock since this server was started, and
-- no session holds it any more (see stay). A start that lost its connection is listed until it
-- reconnects, so this is for reports.
create or replace function headrace._dead_instances() returns setof uuid
language sql stable
set search_path = pg_catalog, pg_temp
as $$
    select i.instance from headrace.instances i
    where i.locked_under = pg_postmaster_start_time()
      and headrace._instance_lock(i.instance) not in (
          select l.classid::bigint << 32 | l.objid::bigint from pg_locks l
          where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
            and l.database = (select d.oid from pg_database d where d.datname = current_database()))
$$;
