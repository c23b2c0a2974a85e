-- Drops, or detaches, the months that retention has passed; returns whether all of them could be. Whole partitions
-- only: the log is never edited. One month that cannot go keeps no other.
create or replace function headrace.retire_partitions() returns boolean
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'            -- a month is a month of UTC
as $$
declare
    oldest timestamptz := headrace.now() - headrace.setting('retention')::interval;
    month record;
    done boolean := true;
begin
    for month in
        select p.relname as parent, c.relname as name, to_timestamp(right(c.relname, 7), 'YYYY_MM') + interval '1 month' as ends_at
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        join pg_class p on p.oid = i.inhparent
        where p.relnamespace = 'headrace'::regnamespace and p.relname in ('events', 'outcomes', 'errors')
          and c.relname ~ '_\d{4}_\d\d$'
        order by c.relname
    loop
        continue when month.ends_at > oldest;
        begin
            perform headrace.retire_partition(month.parent, month.name, month.ends_at);
        exception when others then
            done := headrace.put_off('retiring ' || month.name, sqlstate, sqlerrm);
        end;
    end loop;
    if exists (select from headrace.events_carried) then
        delete from headrace.events_carried c where c.id not in (select l.event from headrace.live() l);
    end if;
    return done;
end $$;
