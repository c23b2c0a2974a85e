-- Fires the scheduled tasks whose instants have come, at most `most` tasks, the longest due first; returns how many events that gave.
-- A task that cannot be published keeps no other from firing, see try_fire. since: as in tick_due.
-- Concurrency: one event for an instant, however many tick: whoever fires a task has its row, the others skip it; and the event is
-- there if and only if this transaction commits, which notes the instant.
create or replace function headrace.tick_schedules(most int, since timestamptz default '-infinity') returns int
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    task headrace.scheduled_tasks;
    fired int := 0;
begin
    for task in
        select s.* from headrace.scheduled_tasks s
        where s.due_at <= t and s.due_at >= since
        order by s.due_at limit most
        for update skip locked
    loop
        fired := fired + headrace.try_fire(task, t);
    end loop;
    return fired;
end $$;
