-- Publishes a task's event, once for each of these instants, or once without an instant (an empty
-- array); returns the ids, in order.
-- Raises the errors of publish.
create or replace function headrace._emit_scheduled(task headrace.scheduled_tasks, fires timestamptz[]) returns bigint[]
language sql
set search_path = pg_catalog, pg_temp
as $$
    select p.ids
    from headrace.namespaces n, headrace._publish_batch(n.name, (
        select jsonb_agg(
            task.event || jsonb_build_object('type', task.event_type, 'payload', task.payload, 'producer', 'scheduler',
                                             'scheduled_task_id', task.task_id)
            || jsonb_strip_nulls(jsonb_build_object('scheduled_for',
                                                    to_char(f at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')))
            order by f)
        from unnest(case when fires = '{}' then array[null::timestamptz] else fires end) f), true, headrace._now(),
            checked => false, asked => null) p
    where n.id = task.namespace
$$;
