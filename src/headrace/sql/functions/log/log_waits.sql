-- The transaction that a reader of the log waits for, by the mark that log_since returned: the
-- longest open one that has written. Without names: it may be another tenant's. No row: the reader
-- waits for none.
--     pid        its process; null: it is prepared for a commit in two phases
--     since      the time it began
create or replace function headrace.log_waits(mark text) returns table (pid int, since timestamptz)
language sql stable security definer
set search_path = pg_catalog, pg_temp
as $$
    select l.pid, coalesce(a.xact_start, p.prepared)
    from (
        select distinct l.pid, l.virtualtransaction from pg_locks l
        where l.locktype = 'relation' and l.mode = 'RowExclusiveLock'
          and l.virtualtransaction = any (string_to_array(split_part(log_waits.mark, ' ', 6), ','))
    ) l
    left join pg_stat_get_activity(l.pid) a on true
    left join pg_prepared_xacts p on l.pid is null and split_part(l.virtualtransaction, '/', 2) = p.transaction::text
    order by coalesce(a.xact_start, p.prepared) limit 1
$$;
