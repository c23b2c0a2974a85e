-- Stores more instants at which a task is to fire, in whole seconds; those up to planned_until are known already, and left out.
-- Those that are past by now belong to it, and one at least that is to come: see fire. Returns whether they are of use: not if the task is gone, or `version` is not its
-- version now, because they were worked out for another expression or time zone.
-- Concurrency: two that plan the same task store what one of them would have. Waits for a tick that is firing it.
-- Raises QU001 for more than 1000 of them, QU010.
create or replace function headrace.plan_task(namespace text, task_id uuid, version int, next_fires timestamptz[]) returns boolean
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace.now();
    home int := (select n.id from headrace.namespaces n where n.name = plan_task.namespace);
    task headrace.scheduled_tasks;
    fresh timestamptz[];
begin
    perform headrace.admit(plan_task.namespace);
    if home is null then
        perform headrace.no_such_queue(plan_task.namespace, 'main');
    elsif cardinality(plan_task.next_fires) > 1000 then
        raise exception using errcode = 'QU001', message = 'at most 1000 instants are planned at a time';
    end if;
    select * into task from headrace.scheduled_tasks s
    where s.task_id = plan_task.task_id and s.namespace = home and s.version = plan_task.version
    for update;
    if not found then
        return false;
    end if;
    task.planned_until := (headrace.listed_task(task, t)).planned_until;
    -- What lies beyond was planned by a clock that was ahead, and is planned again when its time has come.
    task.next_fires := array(select f from unnest(task.next_fires) f where f <= task.planned_until order by f);
    fresh := array(
        select distinct date_trunc('second', f) from unnest(plan_task.next_fires) f
        where date_trunc('second', f) > task.planned_until and isfinite(f) order by 1);
    if fresh <> '{}' then
        update headrace.scheduled_tasks u set
            next_fires = task.next_fires || fresh,
            planned_until = fresh[cardinality(fresh)],
            planned_at = t,
            updated_at = least(task.updated_at, t),     -- else it would be planned anew once more: see mend_times
            -- not before now: a tick that looks no further back must find it, too
            due_at = case when task.active then least(task.due_at, greatest((task.next_fires || fresh)[1], t)) end
        where u.task_id = task.task_id;
    end if;
    return true;
end $$;
