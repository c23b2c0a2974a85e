-- run_schedule by the task's id, for a scheduler outside (pg_cron): a task that is paused or gone publishes nothing and gives null.
-- by_clock: the scheduler has come because the task's time has. Then what is published is what its schedule has due and nobody has
-- fired; beyond the instants that were worked out for it, this minute is one, because the scheduler knows; null: all is fired.
-- Concurrency: one event for an instant, however many ticks and schedulers come for it; waits for a tick that is firing it.
-- Raises what publish raises; by_clock nothing: what cannot be published is tried again, see try_fire.
create or replace function headrace.run_scheduled_task(task_id uuid, by_clock boolean default false) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    minute timestamptz := date_trunc('minute', t);
    task headrace.scheduled_tasks;
begin
    perform headrace.admit(n.name)
    from headrace.scheduled_tasks s join headrace.namespaces n on n.id = s.namespace where s.task_id = run_scheduled_task.task_id;
    if by_clock is not true then
        update headrace.scheduled_tasks u set updated_at = t
        where u.task_id = run_scheduled_task.task_id and u.active
        returning * into task;
        return case when task.task_id is not null then (headrace.emit_scheduled(task, '{}'))[1] end;
    end if;
    select * into task from headrace.scheduled_tasks s where s.task_id = run_scheduled_task.task_id and s.active for update;
    if not found then
        return null;
    end if;
    if task.planned_until < minute then
        update headrace.scheduled_tasks u set next_fires = task.next_fires || minute, planned_until = minute
        where u.task_id = task.task_id
        returning * into task;
    end if;
    if headrace.try_fire(task, t, t - interval '1 minute', task.planned_until = minute) = 0 then
        return null;
    end if;
    return (select f.event from headrace.fires f where f.task_id = task.task_id order by f.fire_at desc limit 1);
end $$;
