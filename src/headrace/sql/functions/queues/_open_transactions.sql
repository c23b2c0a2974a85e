-- The given transactions of this database that are still open; null: all that are open now, except
-- the caller's. An empty array means that all of them are over, and that the next statement sees
-- their commits. A transaction is identified by its virtual id, which it has from its first moment
-- on, whether it writes or not. A transaction that is prepared for a two-phase commit gives its
-- virtual id up: so when the virtual ids are gone, the function waits for the transactions that are
-- prepared by then.
create or replace function headrace._open_transactions(known text[]) returns text[]
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    left_over text[];
begin
    if known is null or exists (select from unnest(known) k where k not like 'prepared %') then
        left_over := array(
            select l.virtualxid from pg_locks l
            where l.locktype = 'virtualxid' and l.mode = 'ExclusiveLock' and l.pid <> pg_backend_pid()
              and (known is null or l.virtualxid = any (known))
              -- neither of another database nor autovacuum, which has no user
              and not exists (
                  select from pg_stat_get_activity(l.pid) a
                  where a.usesysid is null or a.datid <> (select d.oid from pg_database d
                                                          where d.datname = current_database())));
        if left_over <> '{}' then
            return left_over;
        end if;
    end if;
    return array(
        select 'prepared ' || p.gid from pg_prepared_xacts p
        where p.database = current_database()
          and (left_over is not null or 'prepared ' || p.gid = any (known)));
end $$;
