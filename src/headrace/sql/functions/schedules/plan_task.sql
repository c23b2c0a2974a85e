-- Stores more instants at which a task is to fire, in whole seconds; instants up to planned_until
-- are known already, and left out. The list includes instants that are past by now, and at least
-- one future instant: see _fire_due. Returns whether the task used them: not if the task is gone,
-- or `version` is not its current version, because they were computed for another expression or
-- time zone.
-- Concurrency: two callers that plan the same task store the same as one. Waits for a tick that is
-- firing the task.
-- Raises QU001 for more than 1000 instants, QU010.
create or replace function headrace.plan_task(
    namespace text, task_id uuid, version int, next_fires timestamptz[]
) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    home int := (select n.id from headrace.namespaces n where n.name = plan_task.namespace);
    task headrace.scheduled_tasks;
    fresh timestamptz[];
begin
    perform headrace._check_access(plan_task.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(plan_task.namespace, 'main');
    elsif cardinality(plan_task.next_fires) > 1000 then
        raise exception using errcode = 'QU001', message = 'at most 1000 instants are planned at a time';
    end if;
    select * into task from headrace.scheduled_tasks s
    where s.task_id = plan_task.task_id and s.namespace = home and s.version = plan_task.version
    for update;
    if not found then
        return false;
    end if;
    task.planned_until := (headrace._task_row(task, t)).planned_until;
    -- Later instants were planned by a clock that was ahead, and are planned again when their time
    -- has come.
    task.next_fires := array(select f from unnest(task.next_fires) f where f <= task.planned_until order by f);
    fresh := array(
        select distinct date_trunc('second', f) from unnest(plan_task.next_fires) f
        where date_trunc('second', f) > task.planned_until and isfinite(f) order by 1);
    if fresh <> '{}' then
        update headrace.scheduled_tasks u set
            next_fires = task.next_fires || fresh,
            planned_until = fresh[cardinality(fresh)],
            planned_at = t,
            -- else the task would be planned once more: see _replan_after_clock_change
            updated_at = least(task.updated_at, t),
            -- not before now: a tick that looks no further back must find it, too
            due_at = case when task.active then least(task.due_at, greatest((task.next_fires || fresh)[1], t)) end
        where u.task_id = task.task_id;
    end if;
    return true;
end $$;
