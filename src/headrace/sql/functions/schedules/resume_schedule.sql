-- Makes a scheduled task active again, from now on; returns it. Raises QU001, QU010, QU013.
-- actor: the name in the log (see _log_action); default: the caller's role.
create or replace function headrace.resume_schedule(
    namespace text, name text, actor text default null
) returns headrace.listed_task
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    task headrace.scheduled_tasks := headrace._task_named(resume_schedule.namespace, resume_schedule.name);
    t timestamptz := headrace._now();
    coming timestamptz[] := array(select f from unnest(task.next_fires) f where f > t order by f);
begin
    if not task.active then
        update headrace.scheduled_tasks u set
            active = true, next_fires = coming, planned_until = greatest(u.planned_until, t), due_at = coming[1],
            updated_at = t
        where u.task_id = task.task_id
        returning * into task;
        perform headrace._log_action(task.namespace, resume_schedule.actor, 'resume_schedule', task.name);
    end if;
    return headrace._task_row(task, t);
end $$;
