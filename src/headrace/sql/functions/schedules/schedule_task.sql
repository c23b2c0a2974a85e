-- Schedules an event: makes the task, or changes the one of this name, and returns it. An identical
-- task stays as it is; a paused task stays paused; a task whose expression or time zone changes
-- loses the instants that were computed for it. The task fires once its instants have been
-- computed: clients do that, and every running node; see plan_task.
--     cron_expression   five fields, or six with seconds first; or @hourly, @daily …
--     timezone          in which the expression is read
--     event             the event's other fields for publish: tags, priority, key, max_retries,
--                       title, …
--     missed            the policy for instants that did not fire for more than a minute, because
--                       no tick ran:
--                           coalesce   one event, for the last of them
--                           catch_up   an event for each, for the last 100 of them
--                           skip       none
-- Every event has "scheduler" as its producer, scheduled_task_id, and scheduled_for: its instant.
-- actor: the name in the log (see _log_action); default: the caller's role.
-- Concurrency: two callers that schedule the same name take turns; waits for a tick that is firing
-- the task.
-- Raises QU001, QU002, QU003, QU010.
create or replace function headrace.schedule_task(
    namespace text,
    name text,
    cron_expression text,
    event_type text default 'event',
    payload jsonb default '{}',
    timezone text default 'UTC',
    missed text default 'coalesce',
    event jsonb default '{}',
    actor text default null
) returns headrace.listed_task
language plpgsql security definer
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_column
declare
    t timestamptz := headrace._now();
    -- shared: the namespace is not deleted meanwhile
    home int := (select n.id from headrace.namespaces n where n.name = schedule_task.namespace for key share);
    task headrace.scheduled_tasks;
    made boolean;
    again boolean;
begin
    perform headrace._check_access(schedule_task.namespace);
    if home is null then
        perform headrace._raise_no_such_queue(schedule_task.namespace, 'main');
    end if;
    payload := coalesce(schedule_task.payload, '{}');
    event := coalesce(schedule_task.event, '{}');
    perform headrace._raise_problem(headrace._task_problem(
        schedule_task.name, schedule_task.cron_expression, schedule_task.timezone, schedule_task.missed,
        schedule_task.event || jsonb_build_object('type', coalesce(schedule_task.event_type, 'event')),
        schedule_task.payload), 0);
    insert into headrace.scheduled_tasks (task_id, namespace, name, cron_expression, timezone, event_type, payload,
                                          event, missed, planned_until, created_at, updated_at)
    values (gen_random_uuid(), home, schedule_task.name, schedule_task.cron_expression, schedule_task.timezone,
            coalesce(schedule_task.event_type, 'event'), schedule_task.payload, schedule_task.event - 'type',
            schedule_task.missed, t, t, t)
    on conflict (namespace, name) do nothing;
    made := found;
    select * into task from headrace.scheduled_tasks s where s.namespace = home
        and s.name = schedule_task.name for update;
    if not found then
        raise exception using errcode = '40001', message = format('the schedule %L is being removed',
                                                                  schedule_task.name);
    end if;
    again := (task.cron_expression, task.timezone) is distinct from (schedule_task.cron_expression,
                                                                     schedule_task.timezone);
    if again or (task.event_type, task.payload, task.event, task.missed) is distinct from
                (coalesce(schedule_task.event_type, 'event'), schedule_task.payload, schedule_task.event - 'type',
                 schedule_task.missed) then
        update headrace.scheduled_tasks u set
            cron_expression = schedule_task.cron_expression, timezone = schedule_task.timezone,
            event_type = coalesce(schedule_task.event_type, 'event'), payload = schedule_task.payload,
            event = schedule_task.event - 'type', missed = schedule_task.missed, updated_at = t,
            version = task.version + again::int,
            next_fires = case when again then '{}' else task.next_fires end,
            planned_until = case when again then t else task.planned_until end,
            due_at = case when not again then task.due_at end
        where u.task_id = task.task_id
        returning * into task;
        made := true;
    end if;
    if made then
        perform headrace._log_action(home, schedule_task.actor, 'schedule_task', task.name, jsonb_build_object(
            'cron_expression', task.cron_expression, 'timezone', task.timezone, 'event_type', task.event_type));
    end if;
    return headrace._task_row(task, t);
end $$;
