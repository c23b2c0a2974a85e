-- Publishes a scheduled task's event now, also if it is paused; returns the event's id. It is for no instant: what the schedule
-- fires, and when, stays as it is. Raises QU001, QU010, QU013, and what publish raises.
-- actor: who did it, for the log: see log_action. The caller's role if nobody is named.
create or replace function headrace.run_schedule(namespace text, name text, actor text default null) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    task headrace.scheduled_tasks := headrace.its_task(run_schedule.namespace, run_schedule.name);
begin
    update headrace.scheduled_tasks u set updated_at = headrace.now() where u.task_id = task.task_id;
    perform headrace.log_action(task.namespace, run_schedule.actor, 'run_schedule', task.name);
    return (headrace.emit_scheduled(task, '{}'))[1];
end $$;
