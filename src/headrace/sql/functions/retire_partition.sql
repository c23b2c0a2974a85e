-- Takes one month out of its table. What still lives is not lost: under the lock, the bodies of unfinished deliveries
-- are carried over, so that none can come or go between the look and the drop. Dead letters have theirs with them.
-- The lock of the parent comes first, as in every query: the other way round would be a deadlock with each of them.
create or replace function headrace.retire_partition(parent text, name text, ends_at timestamptz) returns void
language plpgsql
as $$
begin
    execute format('lock table only headrace.%I in access exclusive mode', parent);
    execute format('lock table headrace.%I in access exclusive mode', name);
    if parent = 'events' then
        execute format('insert into headrace.events_carried
                        select e.* from headrace.%I e join headrace.live(%L) l on l.event = e.id
                        on conflict do nothing', name, ends_at);
    end if;
    execute format('alter table headrace.%I detach partition headrace.%I', parent, name);
    if headrace.setting('retention_action') = 'drop' then
        execute format('drop table headrace.%I', name);
    end if;
end $$;
