-- Fires the scheduled tasks whose instants have come, at most `most` tasks, the longest due first.
-- Returns the number of events published, and whether there may be more tasks due. A task that
-- cannot be published does not hold up other tasks, see _try_fire. since: as in _tick_due.
-- Concurrency: one event for an instant, however many ticks run: the tick that fires a task locks
-- its row, the others skip it; and the event exists if and only if this transaction commits, which
-- stores the instant.
create or replace function headrace._tick_schedules(
    most int, since timestamptz default '-infinity', out fired int, out more boolean
)
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    everywhere constant boolean := headrace._has_access(null);
    missed_by timestamptz;
    task headrace.scheduled_tasks;
    looked int := 0;
begin
    fired := 0;
    for task in
        select s.* from headrace.scheduled_tasks s
        where s.due_at <= t and s.due_at >= since
          and (everywhere or headrace._has_access((select n.name from headrace.namespaces n where n.id = s.namespace)))
        order by s.due_at limit most
        for update skip locked
    loop
        if looked = 0 then
            missed_by := least(t, headrace._schedules_busy_since(t)) - interval '1 minute';
        end if;
        looked := looked + 1;
        fired := fired + headrace._try_fire(task, t, missed_by);
    end loop;
    more := looked >= most;
    if more then
        insert into headrace.busy_ticks (at)
        select t where not exists (select from headrace.busy_ticks b where b.at > t - interval '5 seconds'
                                       and b.at <= t);
    end if;
end $$;
