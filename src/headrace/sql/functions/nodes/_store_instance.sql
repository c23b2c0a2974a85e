-- Stores a start of a node, and whether this session holds its lock: see stay.
create or replace function headrace._store_instance(namespace int, node_id text, instance uuid) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    lock constant bigint := headrace._instance_lock(instance);
    locked_under constant timestamptz := (
        select pg_postmaster_start_time() from pg_locks l
        where l.locktype = 'advisory' and l.pid = pg_backend_pid() and l.objsubid = 1
          and l.classid::bigint = lock >> 32 & 4294967295 and l.objid::bigint = lock & 4294967295);
begin
    insert into headrace.instances as i (instance, namespace, node_id, locked_under)
    values (instance, namespace, node_id, locked_under)
    on conflict on constraint instances_pkey do update set locked_under = excluded.locked_under
    where i.locked_under is distinct from excluded.locked_under;
end $$;
