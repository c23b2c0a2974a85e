-- Drops, or detaches, the months that retention has passed. Whole partitions only: the log is never edited.
-- What still lives is not lost: under the partition's lock the bodies of unfinished deliveries are carried over, so
-- no delivery can come or go between the look and the drop. Dead letters have their bodies with them.
create function headrace.retire_partitions() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set timezone = 'UTC'            -- a month is a month of UTC
as $$
declare
    kept text := headrace.setting('retention');
    how text := headrace.setting('retention_action');
    old record;
begin
    for old in
        select p.relname as parent, c.relname as name,
               to_timestamp(right(c.relname, 7), 'YYYY_MM') + interval '1 month' as ends_at
        from pg_inherits i
        join pg_class c on c.oid = i.inhrelid
        join pg_class p on p.oid = i.inhparent
        where p.relnamespace = 'headrace'::regnamespace and p.relname in ('events', 'outcomes', 'errors')
          and c.relname ~ '_\d{4}_\d\d$'
        order by c.relname
    loop
        continue when old.ends_at > headrace.now() - kept::interval;
        execute format('lock table headrace.%I in access exclusive mode', old.name);
        if old.parent = 'events' then
            execute format(
                'insert into headrace.events_carried
                 select e.* from headrace.%I e join headrace.live(%L) l on l.event = e.id
                 on conflict do nothing', old.name, old.ends_at);
        end if;
        execute format('alter table headrace.%I detach partition headrace.%I', old.parent, old.name);
        if how = 'drop' then
            execute format('drop table headrace.%I', old.name);
        end if;
    end loop;
    if exists (select from headrace.events_carried) then
        delete from headrace.events_carried c where c.id not in (select l.event from headrace.live() l);
    end if;
end $$;
