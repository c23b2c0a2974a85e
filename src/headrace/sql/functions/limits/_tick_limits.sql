-- The part of tick for limits that have just changed: a claim that began before does not know of it
-- and takes no slots, so tick does. A claim reads the queue first, so tick looks until the
-- transactions are over that were open at the change: see _tick_chores, which does the same.
create or replace function headrace._tick_limits() returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
declare
    c headrace.limit_changes;
    q headrace.queues;
begin
    for c in
        select * from headrace.limit_changes o
        where o.made_by is distinct from pg_current_xact_id_if_assigned()
        for update skip locked
    loop
        c.waits_for := headrace._open_transactions(c.waits_for);
        select * into q from headrace.queues o where o.id = c.queue;
        perform headrace._count_slots(q);
        if c.waits_for = '{}' then
            delete from headrace.limit_changes o where o.queue = c.queue;
        else
            update headrace.limit_changes o set waits_for = c.waits_for where o.queue = c.queue;
        end if;
    end loop;
end $$;
