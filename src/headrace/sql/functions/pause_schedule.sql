-- Pauses a scheduled task: it does not fire until resume_schedule, and what it would have fired meanwhile is not missed.
-- Concurrency: waits for a tick that is firing it; when this has committed, nothing more is fired. Raises QU001, QU010, QU013.
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named.
create or replace function headrace.pause_schedule(namespace text, name text, actor text default null) returns void
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    task headrace.scheduled_tasks := headrace.its_task(pause_schedule.namespace, pause_schedule.name);
begin
    update headrace.scheduled_tasks u set active = false, due_at = null, updated_at = headrace.now()
    where u.task_id = task.task_id and u.active;
    if found then
        perform headrace.log_action(task.namespace, pause_schedule.actor, 'pause_schedule', task.name);
    end if;
end $$;
