-- Removes the leases that hold nothing any more, and leaves leases that another session has locked
-- to tick.
create or replace function pgmq._drop_leases(leases bigint[]) returns void
language sql
set search_path = pg_catalog, pg_temp
as $$
    delete from headrace.leases l where l.id = any (array(
        select e.id from headrace.leases e
        where e.id = any (_drop_leases.leases) and e.lenient
          and not exists (select from headrace.held h where h.lease = e.id)
        order by e.id for update skip locked))
$$;
