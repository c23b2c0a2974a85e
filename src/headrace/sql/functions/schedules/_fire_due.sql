-- Fires a task's due instants, by its policy on missed ones: see schedule_task. Returns the number
-- of events published. The caller has locked the task.
-- missed_by: instants that came due by then were missed. That is a minute ago, because a tick may
-- be slow, and then each instant has its event whatever the policy; where ticks have been busy with
-- earlier instants, it is a minute before that began: see _schedules_busy_since. Missed instants do
-- not fire before a future instant is planned: the last known instant may not be the last missed
-- one. up_to_now: it is, whatever is planned. The log of administration records the instants that
-- get no event by the policy.
-- Raises the errors of publish.
create or replace function headrace._fire_due(
    task headrace.scheduled_tasks, t timestamptz, missed_by timestamptz, up_to_now boolean default false
) returns int
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    due timestamptz[] := array(select f from unnest(task.next_fires) f where f <= t order by f);
    coming timestamptz[] := array(select f from unnest(task.next_fires) f where f > t order by f);
    missed boolean := due[1] <= missed_by;
    fires timestamptz[];
    dropped timestamptz[];
begin
    if missed and task.missed <> 'skip' and coming = '{}' and not up_to_now then
        update headrace.scheduled_tasks u set due_at = null, updated_at = t where u.task_id = task.task_id;
        return 0;
    end if;
    fires := array(
        select d.f from unnest(due) with ordinality as d(f, n)
        where case when not missed then true
                   when task.missed = 'coalesce' then d.n = cardinality(due)
                   when task.missed = 'catch_up' then d.n > cardinality(due) - 100
                   else d.f > missed_by end
          and not exists (select from headrace.fires k where k.task_id = task.task_id and k.fire_at = d.f)
        order by d.n);
    if fires <> '{}' then
        insert into headrace.fires (task_id, fire_at, event)
        select task.task_id, u.f, u.id from unnest(fires, headrace._emit_scheduled(task, fires)) as u(f, id);
    end if;
    if missed and task.missed <> 'coalesce' then    -- coalesced instants have one
        dropped := array(
            select f from unnest(due) f
            where not exists (select from headrace.fires k where k.task_id = task.task_id and k.fire_at = f)
            order by f);
    end if;
    if dropped <> '{}' then
        perform headrace._log_action(task.namespace, null, 'missed', task.name, self => 'headrace',
                                     details => jsonb_build_object(
            'policy', task.missed, 'instants', cardinality(dropped), 'first', dropped[1], 'last',
            dropped[cardinality(dropped)]));
    end if;
    update headrace.scheduled_tasks u set
        next_fires = coming, due_at = coming[1], updated_at = t,
        last_fire_at = coalesce(fires[cardinality(fires)], u.last_fire_at)
    where u.task_id = task.task_id;
    return cardinality(fires);
end $$;
