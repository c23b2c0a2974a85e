-- Fires a task's due instants, see _fire_due, missed_by too; returns the number of events
-- published. A task that cannot be published (its queue is full) keeps its instants and is retried
-- ten seconds later. The caller has locked the task.
create or replace function headrace._try_fire(
    task headrace.scheduled_tasks, t timestamptz, missed_by timestamptz, up_to_now boolean default false
) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    return headrace._fire_due(task, t, missed_by, up_to_now);
exception when others then
    update headrace.scheduled_tasks u set due_at = t + interval '10 seconds', updated_at = t
    where u.task_id = task.task_id;
    if sqlstate not in ('QU050', 'QU051') then
        raise warning 'headrace: the schedule % could not fire and will be tried again: %', task.name, sqlerrm;
    end if;
    return 0;
end $$;
