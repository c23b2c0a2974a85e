-- Removes rows that are no longer needed: statistics older than a month, history older than its
-- charts, carried events whose deliveries have ended, the bindings of earlier versions or older
-- than a month (a publisher that still uses such a version computes its binding again), fired
-- instants and nodes of more than a month ago, interruptions whose leases have been gone for an
-- hour, intermediate checkpoints, and the entries of the log of administration that are older than
-- the retained months. By a time that is certain: see _retention_clock.
-- Returns whether there is more to remove: never.
create or replace function headrace._forget() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    t constant timestamptz := headrace._retention_clock();
begin
    delete from headrace.stats s where s.minute < t - interval '31 days';
    delete from headrace.moments m where m.at < t - interval '70 minutes';
    delete from headrace.history h where h.at < t - make_interval(secs => h.step * 190);
    delete from headrace.samplings s where s.at < t - make_interval(secs => s.step * 190);
    delete from headrace.admin_log l where l.at < headrace._retained_since('retention', t);
    delete from headrace.fires f where f.fire_at < t - interval '31 days';
    delete from headrace.interruptions i
    where i.at < t - interval '1 hour' and not exists (select from headrace.leases l where l.id = i.lease);
    delete from headrace.busy_ticks b where b.at < t - interval '1 day';
    delete from headrace.nodes o where o.last_heartbeat < t - interval '31 days';
    delete from headrace.instances i where not exists (
        select from headrace.nodes o where o.namespace = i.namespace and o.node_id = i.node_id);
    delete from headrace.recoveries r where r.recovery_start_time < headrace._retained_since('retention', t);
    -- Of checkpoints older than a day, the last of each hour stays for a month; the last one of all
    -- always stays.
    delete from headrace.queue_checkpoints c
    where c.created_at < t - interval '1 day'
      and exists (
          select from headrace.queue_checkpoints n
          where n.queue_id = c.queue_id and n.created_at > c.created_at
            and (c.created_at < t - interval '31 days'
                 or date_trunc('hour', n.created_at) = date_trunc('hour', c.created_at)));
    update headrace.namespaces n set floor = headrace._last_drawn_id()
    where n.floor < headrace._last_drawn_id()
      and n.id in (select o.id from headrace.namespaces o where o.name is not null for no key update skip locked);
    delete from headrace.bindings b using headrace.namespaces n
    where n.id = b.namespace and (b.version < n.version or b.created_at < t - interval '31 days');
    -- Of the marks before the oldest month only the last is needed.
    delete from headrace.marks m
    where m.at < headrace._oldest_partition() - interval '2 days'
      and exists (select from headrace.marks n where n.id > m.id
                      and n.at < headrace._oldest_partition() - interval '2 days');
    delete from headrace.locks l where l.ctid = any (array(
        select o.ctid from headrace.locks o where o.name like '% %' for update skip locked));
    if exists (select from headrace.events_carried) then
        delete from headrace.events_carried c where c.id not in (select l.event from headrace._unfinished_events() l);
    end if;
    return false;
end $$;
