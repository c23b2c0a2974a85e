-- Publishes a scheduled task's event now, also if it is paused; returns the event's id. The event
-- belongs to no instant: the schedule's own firings stay as they are. Raises QU001, QU010, QU013,
-- and the errors of publish.
-- actor: the name in the log (see _log_action); default: the caller's role.
create or replace function headrace.run_schedule(namespace text, name text, actor text default null) returns bigint
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    task headrace.scheduled_tasks := headrace._task_named(run_schedule.namespace, run_schedule.name);
begin
    update headrace.scheduled_tasks u set updated_at = headrace._now() where u.task_id = task.task_id;
    perform headrace._log_action(task.namespace, run_schedule.actor, 'run_schedule', task.name);
    return (headrace._emit_scheduled(task, '{}'))[1];
end $$;
