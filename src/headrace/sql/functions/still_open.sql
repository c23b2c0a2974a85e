-- Of these transactions of this database, those that are not over; of null: all that are open now, but for the caller's. An empty
-- array says that all of them are over, and that what they committed can be seen by the next statement.
-- A transaction is known by its virtual id, which it has from its first moment on, whether it writes or not. Whoever
-- prepares for a commit in two phases gives it up: so when they are gone, those that are prepared by then are waited for.
create or replace function headrace.still_open(known text[]) returns text[]
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
              -- neither of another database nor autovacuum, which is nobody
              and not exists (
                  select from pg_stat_get_activity(l.pid) a
                  where a.usesysid is null or a.datid <> (select d.oid from pg_database d where d.datname = current_database())));
        if left_over <> '{}' then
            return left_over;
        end if;
    end if;
    return array(
        select 'prepared ' || p.gid from pg_prepared_xacts p
        where p.database = current_database()
          and (left_over is not null or 'prepared ' || p.gid = any (known)));
end $$;
