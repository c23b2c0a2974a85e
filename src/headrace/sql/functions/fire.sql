-- Fires a task's instants that have come, by its policy on those that were missed: see schedule_task. Returns how many events that
-- gave. The caller has locked the task.
-- missed_by: what came due by then was missed. That is a minute ago, because a tick may be slow, and then each instant has its event
-- whatever the policy; where ticks have been busy with what was due before, it is a minute before they were: see busy_since.
-- What was missed is not fired before an instant is planned that is still to come: the last one that is known may not be the last
-- one that was missed. up_to_now: it is, whatever is still to come.
-- Instants that get no event by the policy are noted in the log of administration.
-- Raises what publish raises.
create or replace function headrace.fire(
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
        select task.task_id, u.f, u.id from unnest(fires, headrace.emit_scheduled(task, fires)) as u(f, id);
    end if;
    if missed and task.missed <> 'coalesce' then    -- coalesced, they have one
        dropped := array(
            select f from unnest(due) f
            where not exists (select from headrace.fires k where k.task_id = task.task_id and k.fire_at = f) order by f);
    end if;
    if dropped <> '{}' then
        perform headrace.log_action(task.namespace, null, 'missed', task.name, self => 'headrace', details => jsonb_build_object(
            'policy', task.missed, 'instants', cardinality(dropped), 'first', dropped[1], 'last', dropped[cardinality(dropped)]));
    end if;
    update headrace.scheduled_tasks u set
        next_fires = coming, due_at = coming[1], updated_at = t,
        last_fire_at = coalesce(fires[cardinality(fires)], u.last_fire_at)
    where u.task_id = task.task_id;
    return cardinality(fires);
end $$;
