-- run_schedule by the task's id, for an external scheduler (pg_cron): for a task that is paused or
-- gone it publishes nothing and returns null.
-- by_clock: the scheduler calls because the task is due. Then the function publishes the due
-- instants that have not fired yet; beyond the instants that were computed for the task, this
-- minute counts as one, because the scheduler says so; null: every due instant has fired.
-- Concurrency: one event for an instant, however many ticks and schedulers fire it; waits for a
-- tick that is firing the task.
-- Raises the errors of publish; by_clock none: an event that cannot be published is retried, see
-- _try_fire.
create or replace function headrace.run_scheduled_task(task_id uuid, by_clock boolean default false) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    minute timestamptz := date_trunc('minute', t);
    task headrace.scheduled_tasks;
begin
    perform headrace._check_access(n.name)
    from headrace.scheduled_tasks s join headrace.namespaces n on n.id = s.namespace
    where s.task_id = run_scheduled_task.task_id;
    if by_clock is not true then
        update headrace.scheduled_tasks u set updated_at = t
        where u.task_id = run_scheduled_task.task_id and u.active
        returning * into task;
        return case when task.task_id is not null then (headrace._emit_scheduled(task, '{}'))[1] end;
    end if;
    select * into task from headrace.scheduled_tasks s where s.task_id = run_scheduled_task.task_id
        and s.active for update;
    if not found then
        return null;
    end if;
    if task.planned_until < minute then
        update headrace.scheduled_tasks u set next_fires = task.next_fires || minute, planned_until = minute
        where u.task_id = task.task_id
        returning * into task;
    end if;
    if headrace._try_fire(task, t, t - interval '1 minute', task.planned_until = minute) = 0 then
        return null;
    end if;
    return (select f.event from headrace.fires f where f.task_id = task.task_id order by f.fire_at desc limit 1);
end $$;
